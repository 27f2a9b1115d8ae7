"""A SQLite file that many processes and threads use together."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ops.core.errors import DataError

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 60.0
"""Seconds that a writer waits for the writers of other processes."""
PAGES_KIB = 32_768
"""Page cache in KiB: enough for all but the leaves of a tree of ten million keys."""

_AT_ONCE = 500
"""Values in one statement, which SQLite limits."""

_REMEDIES = {
    "full": "Make room and give the same command again: what was kept is kept",
    "locked": f"Another process has held it for over {BUSY_TIMEOUT_S:.0f} s: end that one",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Let a file that this user may write be there, or none",
    "disk I/O": "Check the disk",
}
"""Words of SQLite's messages → remedy."""


def of_this_machine(path: Path) -> Path:
    """Return where a SQLite file that only saves time may be: at `path`, or for a team in a temporary folder of this
    machine, because a team's workspace is on a volume that several machines mount. Raises `DataError`.
    """
    if not os.environ.get("PODIUM_CACHE_URL"):
        return path
    place = hashlib.sha256(str(path.parent).encode()).hexdigest()[:16]
    own = Path(tempfile.gettempdir(), f"podium-{os.getuid()}-{place}")
    own.mkdir(mode=0o700, exist_ok=True)
    if own.stat().st_uid != os.getuid():
        raise DataError(own, "", "belongs to another user", "Remove it, or set TMPDIR to another folder")
    return own / path.name


class Damaged(DataError):
    """The file is not a database any more."""


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
        """Give the connection, in autocommit mode, to this thread alone inside the block.

        Raises `DataError` for a file that cannot be used now (a full disk, a held lock, no permission), and `Damaged`
        for one that is not a database any more. Earlier commits are kept, uncommitted changes are not.
        """
        try:
            with self._lock:
                if self._connection is None or self._pid != os.getpid():
                    self._connection, self._pid = self._open(), os.getpid()
                yield self._connection
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:
                remedy = "Restore it from a backup (`podium restore`), or move the file away so that a new one is begun"
                raise Damaged(self.path, "", str(error), remedy) from error
            known = [remedy for words, remedy in _REMEDIES.items() if words in str(error)]
            if not isinstance(error, sqlite3.OperationalError) or not known:
                raise
            raise DataError(self.path, "", str(error), known[0]) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that is only read from. Where there is no file yet, none is made: its tables are empty."""
        folder = next(parent for parent in self.path.absolute().parents if parent.exists())
        if self._connection is None and folder.is_dir() and not has_content(self.path):
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                for statement in self._schema:
                    connection.execute(statement)
                yield connection
            return
        with self.connection() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction that holds the write lock from its start, so that values read in it stay valid."""
        with self.connection() as connection, _transaction(connection):
            yield connection

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def delete(self) -> None:
        """Close the connection and remove the file; no other process may use it."""
        self.close()
        for suffix in ("-wal", "-shm", ""):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def set_aside(self, why: Exception) -> None:
        """Rename a file that is not a database any more; the next use begins a new file."""
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        log.warning("%s cannot be read (%s): it was renamed to %s, and a new file is begun", self.path, why, aside.name)
        for suffix in ("", "-wal", "-shm"):
            source = self.path.with_name(self.path.name + suffix)
            if source.exists():
                source.replace(aside.with_name(aside.name + suffix))

    def _open(self) -> sqlite3.Connection:
        # A connection inherited through a fork must be neither used nor closed: both would release the parent's locks.
        # It is only dropped.
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
        """Make all tables in one transaction, so that a kill leaves an empty file."""
        with _transaction(connection):
            if self._is_made(connection):  # by another process
                return
            for statement in self._schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self._version}")

    def _is_made(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has its tables; False for a new one. Raises `DataError` for those of another
        version."""
        tables = _has_tables(connection)  # before the version: another process makes both in one transaction
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version == self._version:
            return True
        if version or tables:
            raise DataError(
                self.path, "schema", f"is version {version}, and this version of Podium uses version {self._version}",
                "Use the version of Podium that made the file, or move the file away to begin a new one",
            )  # fmt: skip
        return False


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk has already rolled the transaction back
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL. If several processes do so at once, SQLite does not wait but fails."""
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


def has_content(path: Path) -> bool:
    """Return whether there is a SQLite file that is not empty, or its log, or something else in its place."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return any(file.is_dir() or (file.exists() and file.stat().st_size > 0) for file in files)


def batched(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give parts that are small enough for one statement."""
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def placeholders(values: Sequence[str]) -> str:
    """Return the placeholders of these values for a statement's `IN (…)`."""
    return ",".join("?" * len(values))
