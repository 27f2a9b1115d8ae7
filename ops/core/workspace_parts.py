"""The parts of a workspace that cost money or cannot be made again, and how they know of each other.

Ledger, response cache and registry are databases of their own. One that is gone or empty would be begun anew without a
word: the caps would forget what was spent, responses would be paid for again, the champion would be unknown. Therefore
each part is compared with what the others hold, and with `parts.json`, which says how much each part held when a
command last looked. That file only helps to notice a loss: nothing is missing if it is deleted. A part that a server of
a team has is not compared.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ops.core import sqlite
from ops.core.atomic import write_text
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace

ACCEPT_OPTION = "--accept-missing"
"""The option with which a person agrees to go on without a part that is missing."""


class WorkspacePart(NamedTuple):
    """One part: a SQLite file or a folder of files, by its path below `.podium`."""

    name: str
    relative_path: str
    server_variable: str = ""
    """The environment variable that names the server which, if set, has this part instead."""
    tables: tuple[str, ...] = ()
    """Tables, or conditions on them, whose rows are the contents; none for a folder."""
    unit: str = ""
    """The word for several rows."""
    loss: str = ""
    """What happens if the part is begun anew."""

    def is_on_server(self, workspace: Workspace) -> bool:
        # MLflow keeps the address of an own store in the environment too, while it is in use.
        own = f"sqlite:///{workspace.state / REGISTRY.relative_path}"
        return os.environ.get(self.server_variable) not in (None, "", own)


LEDGER = WorkspacePart(
    "ledger", "ledger.sqlite", "PODIUM_LEDGER_URL", ("calls", "sent WHERE lost = 1"), "calls",
    "the caps would forget what was spent",
)  # fmt: skip
CACHE = WorkspacePart(
    "cache", "cache/responses.sqlite", "PODIUM_CACHE_URL", ("responses", "entries WHERE kind = 'response'"),
    "responses", "responses would be paid for again",
)  # fmt: skip
STORE_VERSION = 4
"""The schema of the store's file (`ops.store.sqlite_file`)."""
EARLIER_STORES = {
    3: (
        "ALTER TABLE responses RENAME TO entries",
        "ALTER TABLE entries RENAME COLUMN response TO value",
        "ALTER TABLE entries ADD COLUMN kind TEXT NOT NULL DEFAULT 'response'",
        "CREATE INDEX kinds ON entries (kind)",
    ),
}
"""Earlier version → statements that make such a file, which had paid responses only, one of `STORE_VERSION`."""
REGISTRY = WorkspacePart(
    "registry", "mlflow/mlflow.db", "MLFLOW_TRACKING_URI", ("runs", "model_versions"), "runs and versions",
    "the champion and all versions would be unknown",
)  # fmt: skip
ARTIFACTS = WorkspacePart("artifacts", "mlflow/artifacts", "MLFLOW_TRACKING_URI", (), "files")
SNAPSHOTS = WorkspacePart("snapshots", "snapshots")
ALERTS = WorkspacePart("alerts", "alerts.jsonl", unit="alerts")
"""The record of alerts, a line of JSON each."""
RUNS = WorkspacePart("runs", "dagster/history/runs.db", tables=("runs",), unit="runs")
"""Dagster's list of runs. A workspace whose runs are in Postgres does not have this file."""
RECORDS = (ALERTS, RUNS)
"""What only informs: no command stops if it is lost, and those that show it say so."""
PARTS = (LEDGER, CACHE, REGISTRY, ARTIFACTS, SNAPSHOTS)
"""In the order in which a backup copies them: artifacts after the registry that names them."""
_EVIDENCE = {LEDGER: CACHE, CACHE: LEDGER, REGISTRY: ARTIFACTS}
"""Each part that is compared, and the part that has contents only if it has."""


def find_missing_parts(workspace: Workspace, *parts: WorkspacePart) -> list[DataError]:
    """Return a one-line error with a remedy for each part that is gone, empty, begun anew or unreadable, although it
    held something.

    `parts`: look at these only. Nothing is made or changed. Raises `DataError` for a database that another
    process holds.
    """
    noted = _read_record(workspace)
    found = []
    for part in parts or tuple(_EVIDENCE):
        file, count = workspace.state / part.relative_path, _count_contents(workspace, part)
        if count is None:
            continue
        if count < 0:
            state = "is a folder" if file.is_dir() else "is not a database any more"
            proof = "a database belongs there"
        else:
            state = f"holds {count:,} {part.unit}" if count else "is empty" if file.exists() else "is missing"
            proof = _find_evidence(workspace, part, count, noted)
        if proof:
            repairable = part is CACHE and count < 0
            begin = "Repair it with `podium cache verify --repair`, or restore" if repairable else "Restore"
            remedy = (
                f"{begin} it with `podium restore FILE`; or add {ACCEPT_OPTION} to the command that spends "
                f"(`podium run`), which begins a new one: {part.loss}"
            )
            found.append(DataError(file, "", f"{state}, and {proof}", remedy))
    return found


def find_lost_records(workspace: Workspace, *records: WorkspacePart) -> list[DataError]:
    """Return a one-line error for each of these `RECORDS`, or of all, that holds less than it held before.

    A single deleted run does not count, because Dagster's UI can delete runs.
    """
    noted, found = _read_record(workspace), []
    for part in records or RECORDS:
        count, before = _count_contents(workspace, part) or 0, noted.get(part.name, 0)
        if count >= before or (part is RUNS and 2 * count >= before):
            continue
        file = workspace.state / part.relative_path
        state = f"holds {max(count, 0):,} readable {part.unit}" if file.exists() else "is missing"
        remedy = (
            f"Put the file back from a copy of yours; or go on without the others: add {ACCEPT_OPTION} to `podium run`"
        )
        found.append(DataError(file, "", f"{state}, and it held {before:,} before", remedy))
    return found


def _find_evidence(workspace: Workspace, part: WorkspacePart, count: int, noted: Mapping[str, int]) -> str:
    """Return what shows that a part with this contents held more; "" if nothing does."""
    before, other = noted.get(part.name, 0), _EVIDENCE[part]
    if 2 * count < before:  # a part may lose entries one by one, which are damaged or not wanted any more
        return f"it held {before:,} {part.unit} before"
    # A person has agreed to this state; or the first calls are booked and have no response that is kept.
    agreed = part.name in noted and (noted.get(other.name, 0) > 0 or part is CACHE)
    is_used = (workspace.state / part.relative_path).parent.is_dir()  # else this kind of part was never made here
    if is_used and not (count or agreed) and (held := _count_contents(workspace, other) or 0) > 0:
        return f"{workspace.state / other.relative_path} holds {held:,} {other.unit}"
    return ""


def check_parts(workspace: Workspace) -> None:
    """Note what the parts hold. Raises `DataError` if one is missing, `PodiumError` with a line each if several are."""
    found = find_missing_parts(workspace)
    if len(found) > 1:
        raise PodiumError("\n".join(map(str, found)))
    if found:
        raise found[0]
    accept_missing_parts(workspace, *_EVIDENCE)


def record_parts(workspace: Workspace) -> None:
    """Write down what the parts hold, for later comparisons, if it is more than is written down."""
    noted = _read_record(workspace)
    counts = {part.name: _count_contents(workspace, part) or 0 for part in (*_EVIDENCE, ARTIFACTS, *RECORDS)}
    _write_record(workspace, noted | {name: count for name, count in counts.items() if count > noted.get(name, 0)})


def accept_missing_parts(workspace: Workspace, *parts: WorkspacePart) -> list[Path]:
    """Take the present contents of these parts, or of all, for complete. Returns the new names of unreadable files."""
    aside, agreed = [], dict[str, int]()
    for part in parts or tuple(_EVIDENCE):
        count, file = _count_contents(workspace, part), workspace.state / part.relative_path
        if count is None:
            continue
        agreed[part.name] = max(count, 0)
        if count < 0:
            aside.append(file.rename(file.with_name(f"{file.name}.damaged-{time.time_ns()}")))
            for log in (file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
                log.unlink(missing_ok=True)
    # A person who agrees to all that is missing agrees to lost records too.
    counted = (ARTIFACTS,) if parts else (ARTIFACTS, *RECORDS)
    others = {part.name: max(_count_contents(workspace, part) or 0, 0) for part in counted}
    _write_record(workspace, _read_record(workspace) | others | agreed)
    return aside


def _count_contents(workspace: Workspace, part: WorkspacePart) -> int | None:
    """Return how much a part holds: -1 if it is no database any more, None if it is on a server or may not be read."""
    file = workspace.state / part.relative_path
    if part.is_on_server(workspace):
        return None
    if part is ALERTS:
        return _readable_lines(file)
    if not part.tables:
        return sum(each.is_file() for each in file.rglob("*"))
    if not file.exists():
        return 0
    if file.is_file() and not (os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)):
        return None  # the command that uses it reports that
    return count_rows(file, part.tables)


def _readable_lines(file: Path) -> int:
    """Return how many lines of a file hold a JSON object each; 0 if there is no such file."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    found = 0
    for line in lines:
        with suppress(ValueError):
            found += isinstance(json.loads(line), dict)
    return found


def count_rows(file: Path, tables: tuple[str, ...]) -> int:
    """Return the number of rows in those of the tables that a SQLite file has; -1 if it is no whole database. Raises
    `DataError` if another process holds it."""
    try:
        if _is_truncated(file):
            return -1
        uri = f"file:{quote(str(file))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=sqlite.BUSY_TIMEOUT_S)) as connection:
            present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            known = [table for table in tables if table.split()[0] in present]
            counts = [connection.execute(f"SELECT count(*) FROM {table}") for table in known]
            return sum(count.fetchone()[0] for count in counts)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            remedy = f"Another process has held it for over {sqlite.BUSY_TIMEOUT_S:.0f} s: end that one"
            raise DataError(file, "", str(error), remedy) from error
        return -1
    except OSError:  # for example a folder
        return -1


def _is_truncated(file: Path) -> bool:
    """Return whether a SQLite file is shorter than its header says. One with a log may be, while it is written."""
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        return False
    with file.open("rb") as content:
        header = content.read(100)
    size = int.from_bytes(header[16:18], "big")  # of a page; 1 stands for 65,536
    return file.stat().st_size < int.from_bytes(header[28:32], "big") * (65_536 if size == 1 else size)


def _read_record(workspace: Workspace) -> dict[str, int]:
    try:
        noted = json.loads(_record_file(workspace).read_text(encoding="utf-8"))
        return {str(name): int(count) for name, count in noted.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # it only helps to notice a loss
        return {}


def _write_record(workspace: Workspace, held: Mapping[str, int]) -> None:
    if held != _read_record(workspace):
        with suppress(OSError):  # a full disk is reported by what the command is for, and the note stays as it was
            write_text(_record_file(workspace), json.dumps(held, indent=1) + "\n")


def _record_file(workspace: Workspace) -> Path:
    return workspace.state / "parts.json"
