"""One SQLite file, opened so that many processes and threads may use it together."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ops.core.errors import DataError

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for the writers of other processes."""
PAGES_KIB = 32_768
"""Memory for pages of the file: enough for all but the leaves of a tree of ten million keys."""

_AT_ONCE = 500
"""Values in one statement: SQLite has a limit."""

_REMEDIES = {
    "full": "Make room and give the same command again: what was kept is kept",
    "locked": f"Another process has held it for over {BUSY_TIMEOUT_S:.0f} s: end that one",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Let a file that this user may write be there, or none",
    "disk I/O": "Check the disk",
}
"""Words of SQLite → what to do about it."""


class Damaged(DataError):
    """The file is no database any more."""


class SqliteFile:
    """A SQLite file in WAL mode, with one connection per process behind a lock.

    With ``synchronous=NORMAL`` a committed row outlives the death of every process
    (kill -9 included); a power cut can cost the commits since the last checkpoint,
    and never damages the file.

    The statements of `schema` make the tables of a new file, whose ``user_version`` is then `version`. A file of
    another version raises `DataError`: its tables may mean something else.
    """

    def __init__(self, path: Path, version: int, schema: Sequence[str]) -> None:
        self.path = path
        self._version, self._schema = version, schema
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """The connection, in autocommit mode, for this thread alone while in the block.

        Raises `DataError` for a file that cannot be used now (a full disk, a lock that is held, no permission), and
        `Damaged` for one that is no database any more. Earlier commits are kept, uncommitted changes are not.
        """
        try:
            with self._lock:
                if self._connection is None or self._pid != os.getpid():
                    self._connection, self._pid = self._open(), os.getpid()
                yield self._connection
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:
                remedy = "Restore it from a backup (`podium restore`), or move it away to begin a new one"
                raise Damaged(self.path, "(file)", str(error), remedy) from error
            known = [remedy for words, remedy in _REMEDIES.items() if words in str(error)]
            if not isinstance(error, sqlite3.OperationalError) or not known:
                raise
            raise DataError(self.path, "(file)", str(error), known[0]) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start: what it reads stays true."""
        with self.connection() as connection, _transaction(connection):
            yield connection

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def set_aside(self, why: Exception) -> None:
        """Keep what is no database any more under another name; the next use begins a new file."""
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        log.warning("%s cannot be read (%s): set aside as %s, a new one begins", self.path, why, aside.name)
        for suffix in ("", "-wal", "-shm"):
            source = self.path.with_name(self.path.name + suffix)
            if source.exists():
                source.replace(aside.with_name(aside.name + suffix))

    def _open(self) -> sqlite3.Connection:
        # A connection inherited through a fork must be neither used nor closed: both
        # would release locks that the parent holds. It is only forgotten.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA cache_size=-{PAGES_KIB}")
            if not self._is_made(connection):
                self._make(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self, connection: sqlite3.Connection) -> None:
        """All tables in one transaction: a kill meanwhile leaves an empty file."""
        with _transaction(connection):
            if self._is_made(connection):  # by another process
                return
            for statement in self._schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self._version}")

    def _is_made(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has its tables; False for a new one. Raises `DataError` for those of another version."""
        tables = _has_tables(connection)  # before the version: another process makes both in one transaction
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version == self._version:
            return True
        if version or tables:
            raise DataError(
                self.path, "schema", f"is version {version}, and this Podium uses version {self._version}",
                "Use the Podium that made the file, or move the file away to begin a new one",
            )  # fmt: skip
        return False


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled the transaction back already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL. Where several processes do it at once SQLite does not wait, but gives up."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def batched(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Parts that are small enough for one statement."""
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def placeholders(values: Sequence[str]) -> str:
    """What stands in a statement's `IN (…)` for these values."""
    return ",".join("?" * len(values))
