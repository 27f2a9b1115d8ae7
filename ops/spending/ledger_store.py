"""The interface of a store for the ledger's tables; `local` and `shared` implement it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ops.core.processes import ProcessId

T = TypeVar("T")
LEDGER_URL = "PODIUM_LEDGER_URL"
"""The environment variable that names a shared ledger, ``postgresql://USER@HOST:PORT/DB``."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class SqlConnection(Protocol):
    """Statements with `?` for values, in SQL that both engines accept."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class LedgerStore(Protocol):
    """Tables of one ledger. `read` and `write` may call `work` again after a broken connection, so `work` must be
    repeatable."""

    name: str
    """Name for messages; contains no password."""
    leased: bool
    """Whether other machines may take this process for ended while it runs (suspended, disconnected for too long)."""

    def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Return the result of `work`, which only reads."""
        ...

    def write(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work` in one transaction, committed when this returns; no other process writes meanwhile."""
        ...

    def holder(self) -> ProcessId:
        """Return the identity under which this process holds reservations now; called inside `write`."""
        ...

    def find_ended(self, connection: SqlConnection, holders: Sequence[ProcessId]) -> list[ProcessId]:
        """Return those holders whose processes have ended."""
        ...

    def close(self) -> None:
        """Close the file or the connection; the next use opens it again."""
        ...
