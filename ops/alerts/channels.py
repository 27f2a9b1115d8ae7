"""Delivery of a notice through one channel, by Apprise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.alerts.catalogue import Notice
from ops.config.alerts import Alerts, Channel, has_clear_text_password, list_secrets, parse_service

if TYPE_CHECKING:
    from apprise import NotifyResult


@dataclass(frozen=True)
class Delivery:
    """The result of sending a notice through one channel."""

    channel: str
    problem: str = ""
    """Why the delivery failed, without any secret; empty if the notice was accepted."""

    @property
    def is_accepted(self) -> bool:
        """Return whether the channel accepted the notice."""
        return not self.problem


RETRY_PAUSE_S = 2.0
"""The seconds between two attempts. A run waits until its notice is sent."""
_FAILURE_PREFIX = "Socket Exception: "
"""How Apprise's services begin a debug line with the reason of a failed connection."""


def deliver_notice(name: str, channel: Channel, notice: Notice, settings: Alerts) -> Delivery:
    """Send a notice through one channel, with at most `settings.attempts` attempts. Every failure becomes the problem
    of the delivery."""
    import apprise

    try:
        url = channel.fill_variables()
    except ValueError as error:
        return Delivery(name, f"{name}: {error}")
    asset = apprise.AppriseAsset(
        app_id="Podium", app_desc="Podium", async_mode=False, http_redirects=False,
        default_service_retry=settings.attempts - 1, default_service_wait=RETRY_PAUSE_S,
    )  # fmt: skip
    service = parse_service(url, asset)
    where = f"config/alerts.yaml and {', '.join(channel.variables)}" if channel.variables else "config/alerts.yaml"
    if service is None:
        return Delivery(name, f"{name}: Apprise cannot read the URL. Correct it in {where}")
    if has_clear_text_password(service):
        return Delivery(name, f"{name}: the password would be sent in the clear. Use the encrypted protocol in {where}")
    service.socket_connect_timeout = service.socket_read_timeout = settings.timeout_s
    service.overflow_mode, service.optional = apprise.OverflowMode.TRUNCATE, False
    service.request_rate_per_sec = 0.0  # no pause of its own between attempts
    sender = apprise.Apprise(service, asset=asset)
    kind = apprise.NotifyType.FAILURE if notice.kind == "failure" else apprise.NotifyType.INFO
    try:
        with suppress_logging(), sender.notify(
            notice.body or notice.heading, notice.heading, kind, apprise.NotifyFormat.TEXT, log_level=logging.DEBUG
        ) as result:  # fmt: skip
            if result:
                return Delivery(name)
            reason = "; ".join(_list_reasons(result.results[0]))
    except Exception as error:  # noqa: BLE001 - what no service foresaw must not end a run either
        reason = type(error).__name__
    for secret in list_secrets(channel, service):
        reason = reason.replace(secret, "…")
    return Delivery(name, f"{name}: {reason or 'not accepted'}. Look at the service, or correct the URL in {where}")


def _list_reasons(result: NotifyResult) -> list[str]:
    """Return Apprise's warnings of the last attempt, and the reason of a failed connection, each once."""
    entries = list(result.attempts[-1]) if result.attempts else []
    warnings = [" ".join(entry.message.split()).rstrip(".") for entry in entries if entry.level in ("WARNING", "ERROR")]
    notes = [
        entry.message.removeprefix(_FAILURE_PREFIX) for entry in entries if entry.message.startswith(_FAILURE_PREFIX)
    ]
    return list(dict.fromkeys(warnings + [" ".join(note.split()) for note in notes]))


@contextmanager
def suppress_logging() -> Iterator[None]:
    """Hide from all log handlers but Apprise's own what Apprise and its HTTP client log inside the block, because it
    contains URLs, which are secrets."""
    apprise, client = logging.getLogger("apprise"), logging.getLogger("urllib3.connectionpool")
    before = apprise.level, apprise.propagate, client.disabled
    apprise.propagate, client.disabled = False, True
    apprise.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        level, apprise.propagate, client.disabled = before
        apprise.setLevel(level)
