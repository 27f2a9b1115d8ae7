"""What the ledger asks of a place that keeps its tables; `local` and `shared` are the two there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ops.core.processes import ProcessId

T = TypeVar("T")
LEDGER_URL = "PODIUM_LEDGER_URL"
"""The environment variable that names a shared ledger, ``postgresql://USER@HOST:PORT/DB``."""


class Cursor(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class SqlConnection(Protocol):
    """Statements with `?` for values, in SQL that both engines read alike."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...


class Store(Protocol):
    """Tables of one ledger. `read` and `write` may call `work` again after a broken connection: what it does to
    anything but the tables must bear that."""

    name: str
    """For messages to a person; holds no password."""
    leased: bool
    """Whether other machines may take this process for dead while it runs (suspended, cut off for too long)."""

    def read(self, work: Callable[[SqlConnection], T]) -> T:
        """What `work` reads."""
        ...

    def write(self, work: Callable[[SqlConnection], T]) -> T:
        """One transaction; no other writes meanwhile, so what it reads stays true. It is kept when this returns."""
        ...

    def holder(self) -> ProcessId:
        """The identity under which this process holds reservations at present; called inside `write`."""
        ...

    def gone(self, connection: SqlConnection, holders: Sequence[ProcessId]) -> list[ProcessId]:
        """Those of the holders that will never settle anything any more."""
        ...

    def close(self) -> None:
        """Close the file or the connection; the next use opens it again."""
        ...
