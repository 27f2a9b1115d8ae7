"""The interface of a database for the ledger's tables, which `sqlite_ledger` and `postgres_ledger` implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ops.core.processes import ProcessId

T = TypeVar("T")
LEDGER_URL = "PODIUM_LEDGER_URL"
"""The environment variable with the address of a team's ledger, ``postgresql://USER@HOST:PORT/DB``."""


class Cursor(Protocol):
    """The result of an SQL statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement has changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None if there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        ...


class SqlConnection(Protocol):
    """Executes statements with `?` as placeholders, in the SQL that both databases accept."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor:
        """Execute one statement and return its result."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement once for each row of values."""
        ...


class LedgerStore(Protocol):
    """The database with the tables of one ledger.

    `read` and `write` may call `work` again after a broken connection, so `work` must be repeatable.
    """

    name: str
    """The name of the database in messages, without a password."""
    leased: bool
    """True if other machines may take this process for ended while it runs, because it was suspended or disconnected
    for too long."""

    def read(self, work: Callable[[SqlConnection], T]) -> T:
        """Return the result of `work`, which only reads."""
        ...

    def write(self, work: Callable[[SqlConnection], T]) -> T:
        """Run `work` in a transaction that is committed when this returns. No other process writes at the same time."""
        ...

    def holder(self) -> ProcessId:
        """Return the identity under which this process holds reservations. It is called inside `write`."""
        ...

    def find_ended(self, connection: SqlConnection, holders: Sequence[ProcessId]) -> list[ProcessId]:
        """Return those of the holders whose processes have ended."""
        ...

    def close(self) -> None:
        """Close the file or the connection. The next use opens it again."""
        ...
