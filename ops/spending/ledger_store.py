"""The ledger's tables, and the interface of a database that holds them.

`sqlite_ledger` and `postgres_ledger` implement the interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ops.core.processes import ProcessId

T = TypeVar("T")
LEDGER_URL = "PODIUM_LEDGER_URL"
"""The environment variable with the address of a team's ledger, ``postgresql://USER@HOST:PORT/DB``."""


def ledger_tables(*, row_id: str, sums: str = "") -> tuple[str, ...]:
    """Return the statements that create the tables.

    `row_id` declares a primary key to which the database assigns increasing numbers, and `sums` is an option of the
    table of sums. The other declarations are accepted by both databases.
    """
    return (
        # Sums over the calls, so that a reservation does not have to add up all calls.
        f"""CREATE TABLE spending (
            run TEXT, purpose TEXT, worker TEXT, month TEXT,
            calls BIGINT NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
            usd DOUBLE PRECISION NOT NULL, PRIMARY KEY (run, purpose, worker, month)
        ) {sums}""",
        f"""CREATE TABLE blocks (
            id {row_id}, run TEXT NOT NULL, pid BIGINT NOT NULL, started DOUBLE PRECISION NOT NULL,
            usd DOUBLE PRECISION NOT NULL
        )""",
        f"""CREATE TABLE calls (
            id {row_id}, at DOUBLE PRECISION NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
            prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, usd DOUBLE PRECISION NOT NULL
        )""",
        # Calls in flight, and lost calls, which count as spent at their highest possible cost until their cost is
        # known.
        f"""CREATE TABLE sent (
            id {row_id}, at DOUBLE PRECISION NOT NULL, run TEXT NOT NULL, purpose TEXT NOT NULL, worker TEXT NOT NULL,
            month TEXT NOT NULL, key TEXT NOT NULL, usd DOUBLE PRECISION NOT NULL, pid BIGINT NOT NULL,
            started DOUBLE PRECISION NOT NULL, lost INTEGER NOT NULL DEFAULT 0, measured INTEGER NOT NULL DEFAULT 0
        )""",
        "CREATE INDEX lost_by_key ON sent (key) WHERE lost = 1",
        """CREATE VIEW spent AS
            SELECT run, purpose, worker, month, usd, calls, prompt_tokens, completion_tokens,
                0 AS lost, 0.0 AS lost_usd FROM spending
            UNION ALL SELECT run, purpose, worker, month, usd, 0, 0, 0, 1, usd FROM sent WHERE lost = 1""",
    )


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
