"""Send notices, and record every notice on disk whether or not a channel accepts it."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ops.alerts.catalogue import Alert, Notice
from ops.alerts.channels import Delivery, deliver_notice
from ops.config import Alerts, load_alerts
from ops.core.errors import ConfigError, DataError
from ops.core.workspace import Workspace
from ops.core.workspace_parts import ACCEPT_OPTION


@dataclass(frozen=True)
class Closing:
    """When an alert was closed (seconds since the epoch), and what solved it."""

    at: float
    because: str


@dataclass(frozen=True)
class RecordedNotice:
    """A recorded notice with its time (seconds since the epoch) and the channels that did not accept it."""

    at: float
    notice: Notice
    problems: tuple[str, ...]
    closed: Closing | None = None
    """What solved the alert; None if nothing has yet."""

    @property
    def is_open(self) -> bool:
        """Return whether a person still has to do something. A notice without a name in the catalogue, as earlier
        versions recorded it, can never be closed and does not count."""
        return self.closed is None and bool(self.notice.command and self.notice.alert)


def record_notice(workspace: Workspace, notice: Notice, deliveries: Sequence[Delivery]) -> None:
    """Append one line to the record in one write, so that concurrent processes do not mix lines. Raises `OSError`."""
    problems = [delivery.problem for delivery in deliveries if not delivery.is_accepted]
    _append(workspace, {"at": time.time(), **asdict(notice), "problems": problems})


def _append(workspace: Workspace, facts: dict[str, object]) -> None:
    line = json.dumps(facts, ensure_ascii=False) + "\n"
    file = _record_file(workspace)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("utf-8", "surrogatepass"))
    finally:
        os.close(handle)


def is_recorded(workspace: Workspace, occasion: str) -> bool:
    """Return whether a notice of this occasion has been recorded and nothing has solved it since."""
    return any(
        entry.notice.occasion == occasion and entry.closed is None for entry in load_notices(workspace, sys.maxsize)
    )


def close_alerts(
    workspace: Workspace,
    alerts: Collection[Alert],
    because: str,
    *,
    subject: str | None = None,
    still_open: Collection[str] = (),
) -> list[str]:
    """Record that the alerts of these states are solved, and return their titles, the newest first.

    `subject` limits them to notices about one thing. Notices of the occasions in `still_open` stay open. Like
    `notify`, it raises no error of the record, because an alert must not fail a run.
    """
    names = {alert.name for alert in alerts}
    try:
        found = [
            entry
            for entry in load_notices(workspace, sys.maxsize)
            if entry.closed is None
            and entry.notice.alert in names
            and subject in (None, entry.notice.subject)
            and (not entry.notice.occasion or entry.notice.occasion not in still_open)
        ]
        for entry in found:
            _append(workspace, {"closes": entry.at, "at": time.time(), "because": because})
    except (OSError, DataError) as error:
        log.warning("the record of alerts cannot be changed: %s", error)
        return []
    return [entry.notice.title for entry in found]


def load_notices(workspace: Workspace, count: int) -> list[RecordedNotice]:
    """Return the newest `count` notices, the newest first. Lines that a crash cut short are skipped. Raises `DataError`
    if the record is a folder."""
    file = _record_file(workspace)
    if file.is_dir():
        problem = "is a folder, and the record of alerts belongs there"
        without = f"without one, move the folder away, and add {ACCEPT_OPTION} to the next run to begin a new record"
        raise DataError(file, "", problem, f"Put the file back from a copy of yours; {without}")
    if not file.is_file():
        return []
    found: list[RecordedNotice] = []
    closings: dict[float, Closing] = {}
    for line in reversed(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            facts = json.loads(line)
            if "closes" in facts:  # it stands behind the notice that it closes
                closings[facts["closes"]] = Closing(facts["at"], facts["because"])
                continue
            at, problems = facts.pop("at"), facts.pop("problems")
            found.append(RecordedNotice(at, Notice(**facts), tuple(problems), closings.get(at)))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if len(found) == count:
            break
    return found


def load_open_alerts(workspace: Workspace) -> list[RecordedNotice]:
    """Return the alerts about which a person still has to do something, the newest first. Raises `DataError` if the
    record is a folder."""
    return [entry for entry in load_notices(workspace, sys.maxsize) if entry.is_open]


def _record_file(workspace: Workspace) -> Path:
    return workspace.results_folder / "alerts.jsonl"


log = logging.getLogger("podium.alerts")


def notify(workspace: Workspace, notice: Notice) -> Sequence[Delivery]:
    """Send a notice through every channel of `config/alerts.yaml` that accepts its kind, and return the result of each
    channel.

    A notice is not sent again while its occasion is recorded and nothing has solved it. The function returns when every
    channel has accepted the notice or was tried `attempts` times. It raises no error of sending, because an alert must
    not fail a run. A mistake in the file, a channel that cannot be reached or a full disk leads to a warning in the log
    `podium.alerts`.
    """
    if notice.occasion and is_recorded(workspace, notice.occasion):
        return []
    try:
        settings = load_alerts(workspace.config)
    except ConfigError as error:
        settings, deliveries = Alerts(), [Delivery("configuration", str(error))]
    else:
        deliveries = []
    wanted = {name: channel for name, channel in settings.channels.items() if notice.kind in channel.kinds}
    deliveries += [deliver_notice(name, channel, notice, settings) for name, channel in wanted.items()]
    try:
        record_notice(workspace, notice, deliveries)
    except OSError as error:
        deliveries.append(Delivery("record", f"{workspace.results_folder}: {error}"))
    log.info("%s", notice.heading)
    for delivery in deliveries:
        if not delivery.is_accepted:
            log.warning("the alert %r was not sent: %s", notice.heading, delivery.problem)
    return deliveries
