"""The ledger in a SQLite file, which is the default and serves any number of processes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ops.core.processes import ProcessId, process_state, this_process
from ops.core.sqlite import SqliteFile
from ops.spending.ledger_store import SqlConnection, ledger_tables

T = TypeVar("T")

_VERSION = 3
_SCHEMA = ledger_tables(row_id="INTEGER PRIMARY KEY", sums="WITHOUT ROWID")


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
