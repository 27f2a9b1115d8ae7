"""`podium alerts`: test the channels, list the alerts."""

from __future__ import annotations

import sys

import click

from ops.core.workspace import Workspace
from pipelines.commands.lazy import OrderedGroup
from pipelines.commands.options import AS_JSON
from pipelines.commands.shown import print_json


@click.group(cls=OrderedGroup)
def alerts() -> None:
    """Test the channels of alerts, list alerts."""


@alerts.command()
def test() -> None:
    """Send one notice through every channel of config/alerts.yaml.

    Exit code 1 if a channel did not accept it.
    """
    import socket

    from ops.alerts import Notice, notify
    from ops.config import KINDS, load_alerts

    workspace = Workspace.find()
    settings = load_alerts(workspace.config)  # shows a mistake in the file here
    channels = settings.channels.values()
    kind = next((kind for kind in KINDS if all(kind in channel.kinds for channel in channels)), KINDS[0])
    text = f"`podium alerts test` on {socket.gethostname()}. This is a test; no action is needed."
    deliveries = notify(workspace, Notice(kind, "a test", text, settings.ui_url or ""))
    for delivery in deliveries:
        click.echo(delivery.problem or f"{delivery.channel}: taken")
    if not channels:
        click.echo("config/alerts.yaml has no channels: the notice is only written to .podium/alerts.jsonl.")
    sys.exit(0 if all(delivery.taken for delivery in deliveries) else 1)


@alerts.command(name="list")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="The newest N.")
@AS_JSON
def list_(count: int, as_json: bool) -> None:
    """List the alerts, newest first.

    Each with its command, and with the channels that failed.
    """
    from datetime import UTC, datetime

    from ops.alerts.notify import kept

    entries = kept(Workspace.find(), count)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        click.echo(f"{at}  {entry.notice.kind}: {entry.notice.title}")
        if entry.notice.command:
            click.echo(f"                     command: {entry.notice.command}")
        for problem in entry.problems:
            click.echo(f"                     not sent: {problem}")
