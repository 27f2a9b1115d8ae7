"""Notice the loss of the parts of a workspace that cost money or cannot be computed again.

Ledger, response cache and registry are separate databases. Without this check, a part that was deleted or emptied would
be created anew silently: the caps would forget what was spent, responses would be paid for again, or the champion would
be unknown. Each part is therefore compared with the contents of the others, and with `parts.json`, which records how
much each part held when a command last looked. That file is only used to notice a loss and may be deleted. Parts that
are on a team's server are not checked.
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
"""The command-line option with which a user agrees to continue without a missing part."""


class WorkspacePart(NamedTuple):
    """One part of a workspace: a SQLite file or a folder, with its path below `.podium`."""

    name: str
    relative_path: str
    server_variable: str = ""
    """The environment variable with the address of a server. If it is set, the server holds this part."""
    tables: tuple[str, ...] = ()
    """The tables whose rows are counted, each possibly with a condition; empty for a folder, whose files are counted.
    """
    unit: str = ""
    """The noun for what is counted, in the plural."""
    loss: str = ""
    """The consequence, in a message, of creating the part anew."""

    def is_on_server(self, workspace: Workspace) -> bool:
        """Return whether a server holds this part instead of the workspace."""
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
STORE_VERSION = 5
"""The version of the tables in the store's file (`ops.store.sqlite_file`)."""
_FROM_3 = (  # held paid responses only
    "ALTER TABLE responses RENAME TO entries",
    "ALTER TABLE entries RENAME COLUMN response TO value",
    "ALTER TABLE entries ADD COLUMN kind TEXT NOT NULL DEFAULT 'response'",
    "CREATE INDEX kinds ON entries (kind)",
)
_FROM_4 = (
    "DROP INDEX near", "DROP TABLE identities",
    "ALTER TABLE entries DROP COLUMN messages", "ALTER TABLE entries DROP COLUMN worker",
)  # fmt: skip
EARLIER_STORES = {3: (*_FROM_3, *_FROM_4), 4: _FROM_4}
"""Maps an earlier version of the store to the statements that upgrade it to `STORE_VERSION`."""
REGISTRY = WorkspacePart(
    "registry", "mlflow/mlflow.db", "MLFLOW_TRACKING_URI", ("runs", "model_versions"), "runs and versions",
    "the champion and all versions would be unknown",
)  # fmt: skip
ARTIFACTS = WorkspacePart("artifacts", "mlflow/artifacts", "MLFLOW_TRACKING_URI", (), "files")
SNAPSHOTS = WorkspacePart("snapshots", "snapshots")
ALERTS = WorkspacePart("alerts", "alerts.jsonl", unit="alerts")
"""The record of alerts, with one line of JSON for each."""
RUNS = WorkspacePart("runs", "dagster/history/runs.db", tables=("runs",), unit="runs")
"""Dagster's list of runs. A workspace whose runs are in Postgres does not have this file."""
RECORDS = (ALERTS, RUNS)
"""Parts that only inform. Their loss stops no command, but commands that show them report it."""
PARTS = (LEDGER, CACHE, REGISTRY, ARTIFACTS, SNAPSHOTS)
"""The parts in the order in which a backup copies them. Artifacts follow the registry, which refers to them."""
_EVIDENCE = {LEDGER: CACHE, CACHE: LEDGER, REGISTRY: ARTIFACTS}
"""Maps each checked part to another part that has contents only if the first one has contents too."""


def find_missing_parts(workspace: Workspace, *parts: WorkspacePart) -> list[DataError]:
    """Return an error for each part that held something before and is now missing, empty, created anew or unreadable.

    With `parts`, only these are checked. Nothing is created or changed. Raises `DataError` if another process holds a
    database.
    """
    recorded = _read_record(workspace)
    errors = []
    for part in parts or tuple(_EVIDENCE):
        file, count = workspace.state / part.relative_path, _count_contents(workspace, part)
        if count is None:
            continue
        if count < 0:
            state = "is a folder" if file.is_dir() else "is not a database any more"
            evidence = "a database belongs there"
        else:
            state = f"holds {count:,} {part.unit}" if count else "is empty" if file.exists() else "is missing"
            evidence = _find_evidence(workspace, part, count, recorded)
        if evidence:
            repairable = part is CACHE and count < 0
            begin = "Repair it with `podium cache verify --repair`, or restore" if repairable else "Restore"
            remedy = (
                f"{begin} it with `podium restore FILE`; or add {ACCEPT_OPTION} to the command that spends "
                f"(`podium run`), which begins a new one: {part.loss}"
            )
            errors.append(DataError(file, "", f"{state}, and {evidence}", remedy))
    return errors


def find_lost_records(workspace: Workspace, *records: WorkspacePart) -> list[DataError]:
    """Return an error for each of these `RECORDS`, or of all, that holds less than it held before.

    A deleted run is no loss while at least half of the runs are left, because Dagster's UI can delete runs.
    """
    recorded, errors = _read_record(workspace), []
    for part in records or RECORDS:
        count, before = _count_contents(workspace, part) or 0, recorded.get(part.name, 0)
        if count >= before or (part is RUNS and 2 * count >= before):
            continue
        file = workspace.state / part.relative_path
        state = f"holds {max(count, 0):,} readable {part.unit}" if file.exists() else "is missing"
        remedy = (
            f"Put the file back from a copy of yours; or go on without the others: add {ACCEPT_OPTION} to `podium run`"
        )
        errors.append(DataError(file, "", f"{state}, and it held {before:,} before", remedy))
    return errors


def _find_evidence(workspace: Workspace, part: WorkspacePart, count: int, recorded: Mapping[str, int]) -> str:
    """Return the reason to believe that a part held more than `count` before; "" if there is none."""
    before, other = recorded.get(part.name, 0), _EVIDENCE[part]
    if 2 * count < before:  # some entries may have been removed legitimately, because they were damaged or unwanted
        return f"it held {before:,} {part.unit} before"
    # Either a user has accepted this state, or the first calls are in the ledger and no response was stored yet.
    is_accepted = part.name in recorded and (recorded.get(other.name, 0) > 0 or part is CACHE)
    is_used = (workspace.state / part.relative_path).parent.is_dir()  # otherwise this part was never created here
    if is_used and not (count or is_accepted) and (other_count := _count_contents(workspace, other) or 0) > 0:
        return f"{workspace.state / other.relative_path} holds {other_count:,} {other.unit}"
    return ""


def check_parts(workspace: Workspace) -> None:
    """Check all parts and record how much they hold.

    Raises `DataError` if one part is missing, and `PodiumError` with a line for each if several are.
    """
    found = find_missing_parts(workspace)
    if len(found) > 1:
        raise PodiumError("\n".join(map(str, found)))
    if found:
        raise found[0]
    accept_missing_parts(workspace, *_EVIDENCE)


def record_parts(workspace: Workspace) -> None:
    """Record how much each part holds, for later comparisons, if it is more than is recorded."""
    recorded = _read_record(workspace)
    counts = {part.name: _count_contents(workspace, part) or 0 for part in (*_EVIDENCE, ARTIFACTS, *RECORDS)}
    _write_record(
        workspace, recorded | {name: count for name, count in counts.items() if count > recorded.get(name, 0)}
    )


def accept_missing_parts(workspace: Workspace, *parts: WorkspacePart) -> list[Path]:
    """Record the present contents of these parts, or of all, as complete.

    Unreadable files are renamed; returns their new paths.
    """
    renamed, accepted = [], dict[str, int]()
    for part in parts or tuple(_EVIDENCE):
        count, file = _count_contents(workspace, part), workspace.state / part.relative_path
        if count is None:
            continue
        accepted[part.name] = max(count, 0)
        if count < 0:
            renamed.append(file.rename(file.with_name(f"{file.name}.damaged-{time.time_ns()}")))
            for log in (file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
                log.unlink(missing_ok=True)
    # A user who accepts the loss of all parts accepts lost records too.
    also_counted = (ARTIFACTS,) if parts else (ARTIFACTS, *RECORDS)
    others = {part.name: max(_count_contents(workspace, part) or 0, 0) for part in also_counted}
    _write_record(workspace, _read_record(workspace) | others | accepted)
    return renamed


def _count_contents(workspace: Workspace, part: WorkspacePart) -> int | None:
    """Return how many rows, files or alerts a part holds.

    Returns −1 if its file is not a SQLite database any more, and None if a server holds the part or it may not be read.
    """
    file = workspace.state / part.relative_path
    if part.is_on_server(workspace):
        return None
    if part is ALERTS:
        return _readable_lines(file)
    if not part.tables:
        return sum(path.is_file() for path in file.rglob("*"))
    if not file.exists():
        return 0
    if file.is_file() and not (os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)):
        return None  # the command that uses the part reports missing permissions
    return count_rows(file, part.tables)


def _readable_lines(file: Path) -> int:
    """Return how many lines of a file are JSON objects; 0 if there is no such file."""
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
    """Return the total number of rows in those of the `tables` that exist in a SQLite file; −1 if the file is damaged.

    Raises `DataError` if another process holds the file.
    """
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
    """Return whether a SQLite file is shorter than its header says. A file with a log is not checked: it may be shorter
    until the log is written back."""
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        return False
    with file.open("rb") as content:
        header = content.read(100)
    size = int.from_bytes(
        header[16:18], "big"
    )  # the page size, where 1 stands for 65,536 (sqlite.org/fileformat2.html)
    return file.stat().st_size < int.from_bytes(header[28:32], "big") * (65_536 if size == 1 else size)


def _read_record(workspace: Workspace) -> dict[str, int]:
    try:
        recorded = json.loads(_record_file(workspace).read_text(encoding="utf-8"))
        return {str(name): int(count) for name, count in recorded.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # without the record, only some losses are not noticed
        return {}


def _write_record(workspace: Workspace, held: Mapping[str, int]) -> None:
    if held != _read_record(workspace):
        with suppress(OSError):  # a full disk is reported by the command's own work, and the record stays unchanged
            write_text(_record_file(workspace), json.dumps(held, indent=1) + "\n")


def _record_file(workspace: Workspace) -> Path:
    return workspace.state / "parts.json"
