"""Sending a notice: `notify`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ops.alerts.channel import Channel, Delivery, NotDelivered, attempt
from ops.alerts.mail import MailChannel
from ops.alerts.notice import Notice
from ops.alerts.record import keep, told
from ops.alerts.slack import SlackChannel
from ops.config import Alerts, load_alerts
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace

log = logging.getLogger("podium.alerts")


def notify(workspace: Workspace, notice: Notice) -> Sequence[Delivery]:
    """Send it through every channel of `config/alerts.yaml` that wants its kind; the result of each channel.

    A notice of an occasion that there was a notice of is not sent again. Returns when every channel has taken it or
    was tried `attempts` times. Raises nothing that sending can cause, since no run fails because its alert could not
    be sent: a mistake in the file, a channel that is away or a full disk is a warning in the log (`podium.alerts`).
    """
    if notice.occasion and told(workspace, notice.occasion):
        return []
    try:
        settings = load_alerts(workspace.config)
    except ConfigError as error:
        settings, deliveries = Alerts(), [Delivery("configuration", str(error))]
    else:
        deliveries = []
    deliveries += [_delivered(channel, notice, settings.attempts) for channel in _channels(settings, notice)]
    try:
        keep(workspace, notice, deliveries)
    except OSError as error:
        deliveries.append(Delivery("record", f"{workspace.outcome}: {error}"))
    log.info("%s", notice.heading)
    for delivery in deliveries:
        if not delivery.taken:
            log.warning("the alert %r was not sent: %s", notice.heading, delivery.problem)
    return deliveries


def _channels(settings: Alerts, notice: Notice) -> list[Channel]:
    channels: list[Channel] = []
    if settings.slack is not None and notice.kind in settings.slack.kinds:
        channels.append(SlackChannel(settings.slack, settings.timeout_s))
    if settings.mail is not None and notice.kind in settings.mail.kinds:
        channels.append(MailChannel(settings.mail, settings.timeout_s))
    return channels


def _delivered(channel: Channel, notice: Notice, attempts: int) -> Delivery:
    try:
        attempt(lambda: channel.deliver(notice), attempts)
    except NotDelivered as error:
        return Delivery(channel.name, str(error))
    except Exception as error:  # noqa: BLE001 - what no channel foresaw must not end a run either
        return Delivery(channel.name, f"{channel.name}: {type(error).__name__}")
    return Delivery(channel.name)
