"""`podium alerts`: test the channels, list the alerts."""

from __future__ import annotations

import sys

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import AS_JSON
from pipelines.commands.output import print_fact, print_json, print_text

_AT_WIDTH = 20
"""Columns of the time of an alert."""


@click.group(
    cls=OrderedGroup,
    examples=(
        ("List the newest alerts.", "podium alerts list"),
        ("Send a test message to all channels.", "podium alerts test"),
    ),
)
def alerts() -> None:
    """List the alerts, and test where they are sent.

    An alert is a message about the pipeline that needs a person's attention. It is sent to the channels of
    config/alerts.yaml.
    """


@alerts.command(
    examples=(
        ("Send a test message to all channels.", "podium alerts test"),
        ("See how the test message was recorded.", "podium alerts list --count 1"),
    ),
)
def test() -> None:
    """Send one test message to every channel of alerts.

    The channels are in config/alerts.yaml. The exit code is 1 if a channel does not accept the message.
    """
    import socket

    from ops.alerts import Notice, notify
    from ops.config import ALERT_KINDS, load_alerts

    workspace = Workspace.find()
    settings = load_alerts(workspace.config)  # shows a mistake in the file here
    channels = settings.channels.values()
    kind = next((kind for kind in ALERT_KINDS if all(kind in channel.kinds for channel in channels)), ALERT_KINDS[0])
    text = f"`podium alerts test` on {socket.gethostname()}. This is a test; no action is needed."
    deliveries = notify(workspace, Notice(kind, "a test", text, settings.ui_url or ""))
    for delivery in deliveries:
        print_text(delivery.problem or f"{delivery.channel}: the service has accepted the message")
    if not channels:
        print_text("config/alerts.yaml has no channels: the message is only written to .podium/alerts.jsonl.")
    sys.exit(0 if all(delivery.is_accepted for delivery in deliveries) else 1)


@alerts.command(
    name="list",
    examples=(
        ("List the newest five alerts.", "podium alerts list --count 5"),
        ("Print the newest alerts as JSON.", "podium alerts list --json"),
    ),
)
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show the newest N alerts."
)
@AS_JSON
def list_(count: int, as_json: bool) -> None:
    """List the alerts, the newest first.

    Each alert is shown with the command that helps if a person has to do something, or with what has solved it, and
    with the channels that did not accept it.
    """
    from datetime import UTC, datetime

    from ops.alerts.notify import load_notices
    from ops.core.workspace_parts import ALERTS, find_lost_records

    workspace = Workspace.find()
    entries = load_notices(workspace, count)
    for lost in find_lost_records(workspace, ALERTS):
        print_text(str(lost), err=True)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print_fact(at, f"{entry.notice.kind}: {entry.notice.title}", _AT_WIDTH)
        if entry.closed is not None:
            print_fact("", f"closed: {entry.closed.because}", _AT_WIDTH)
        elif entry.notice.command:
            print_fact("", f"command: {entry.notice.command}", _AT_WIDTH)
        for problem in entry.problems:
            print_fact("", f"not sent: {problem}", _AT_WIDTH)
