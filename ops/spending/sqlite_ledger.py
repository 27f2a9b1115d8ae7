"""The ledger in a SQLite file, which is the default and serves any number of processes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ops.core.processes import ProcessId, process_state, this_process
from ops.core.sqlite import SqliteFile
from ops.spending.ledger_store import SqlConnection

T = TypeVar("T")

SPENT_VIEW = """CREATE VIEW spent AS
    SELECT run, purpose, worker, month, usd, calls, prompt_tokens, completion_tokens,
        0 AS lost, 0.0 AS lost_usd FROM spending
    UNION ALL SELECT run, purpose, worker, month, usd, 0, 0, 0, 1, usd FROM sent WHERE lost = 1"""
_VERSION = 3
_SCHEMA = (
    # Sums over the calls, so that a reservation does not have to add up all calls.
    """CREATE TABLE spending (
        run TEXT, purpose TEXT, worker TEXT, month TEXT,
        calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        usd REAL NOT NULL, PRIMARY KEY (run, purpose, worker, month)
    ) WITHOUT ROWID""",
    """CREATE TABLE blocks (
        id INTEGER PRIMARY KEY, run TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL, usd REAL NOT NULL
    )""",
    """CREATE TABLE calls (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, usd REAL NOT NULL
    )""",
    # Calls in flight, and lost calls, which count as spent at their highest possible cost until their cost is known.
    """CREATE TABLE sent (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
        month TEXT NOT NULL, key TEXT NOT NULL, usd REAL NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL,
        lost INTEGER NOT NULL DEFAULT 0, measured INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX lost_by_key ON sent (key) WHERE lost = 1",
    SPENT_VIEW,
)


class LocalLedgerStore:
    """A `LedgerStore` in the SQLite file at `path`, whose interface documents the methods.

    Every method may raise `sqlite3.Error`, and `DataError` for a file of another version.
    """

    leased = False  # on one machine it is always known whether a process is running

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = SqliteFile(path, _VERSION, _SCHEMA)

    def read(self, work: Callable[[SqlConnection], T]) -> T:
        with self._file.reading() as connection:
            return work(connection)

    def write(self, work: Callable[[SqlConnection], T]) -> T:
        with self._file.writing() as connection:
            return work(connection)

    def holder(self) -> ProcessId:
        return this_process()

    def find_ended(self, connection: SqlConnection, holders: Sequence[ProcessId]) -> list[ProcessId]:
        return [holder for holder in holders if process_state(holder) == "gone"]

    def close(self) -> None:
        self._file.close()
