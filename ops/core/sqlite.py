"""A SQLite file that several processes and threads use at the same time."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from ops.core.errors import DataError

log = logging.getLogger(__name__)
T = TypeVar("T")

BUSY_TIMEOUT_S = 60.0
"""Seconds that a writer waits for the writers of other processes."""
PAGE_CACHE_KIB = 32_768
"""SQLite's page cache in KiB. It holds all but the leaf pages of an index of ten million keys."""

_MAX_VALUES_PER_STATEMENT = 500
"""Values in one statement, whose number SQLite limits."""

_REMEDIES = {
    "full": "Make room and give the same command again: what was kept is kept",
    "locked": f"Another process has held it for over {BUSY_TIMEOUT_S:.0f} s: end that one",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Make the file and its folder readable and writable for this user",
    "disk I/O": "Check the disk",
}
"""Maps a part of SQLite's error message to the remedy that is shown to the user."""
_DAMAGE_WORDS = ("malformed", "Could not decode", "unsupported file format", "no such table", "no such column")
"""Parts of the messages of operational errors that only a damaged file causes, because an opened file has all its
tables."""
_RESTORE = "Restore it from a backup (`podium restore FILE`), or move the file away so that a new one is begun"
_RECREATED = "Give the same command again, which makes the file again"


class UnusableFileError(DataError):
    """The content of the file cannot be used, now or later.

    `inode` is the inode number of the file when it was read; None if there was no file.
    """

    inode: int | None = None


class DamagedDatabaseError(UnusableFileError):
    """The file is no longer a SQLite database, or its content differs from what was written."""


class OtherVersionError(UnusableFileError):
    """The file is a database of another version of Podium, whose tables may have another meaning."""


class SqliteFile:
    """A SQLite file in WAL mode (write-ahead log), with one connection per process that its threads use in turn.

    With ``synchronous=NORMAL``, committed rows survive the death of every process (also by SIGKILL). A power failure
    can lose the commits since the last checkpoint, but does not damage the file (sqlite.org/wal.html).

    The statements of `schema` create the tables of a new file and set its ``user_version`` to `version`. `earlier` maps
    an earlier version to the statements that upgrade such a file to `version`. Every other version raises
    `OtherVersionError`. With `is_disposable`, the content can be computed again, and callers use `run_or_recreate`,
    which replaces a damaged file. `remedy` tells the user what to do about a damaged file that is not disposable.
    """

    def __init__(
        self,
        path: Path,
        version: int,
        schema: Sequence[str],
        *,
        earlier: Mapping[int, Sequence[str]] | None = None,
        is_disposable: bool = False,
        remedy: str = _RESTORE,
    ) -> None:
        self.path = path
        self._version, self._schema, self._earlier = version, schema, earlier or {}
        self._remedy = _RECREATED if is_disposable else remedy
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._inode: int | None = None

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, in autocommit mode, for exclusive use by this thread.

        Raises `DataError` if the file cannot be used now (the disk is full, another process holds the lock, or
        permission is missing), and `DamagedDatabaseError` if it is not a database any more. Earlier commits are kept;
        uncommitted changes are lost.
        """
        inode = None
        try:
            with self._lock:
                if self._connection is None or self._pid != os.getpid():
                    inode = _read_inode(self.path)  # before it is opened: another process may put a new file there
                    self._connection, self._pid = self._open(), os.getpid()
                    self._inode = _read_inode(self.path) if inode is None else inode
                inode = self._inode
                yield self._connection
        except OtherVersionError as error:
            error.inode = inode
            raise
        except sqlite3.DatabaseError as error:
            message = str(error)
            operational = isinstance(error, sqlite3.OperationalError)
            if type(error) is sqlite3.DatabaseError or (
                operational and any(words in message for words in _DAMAGE_WORDS)
            ):
                raise self._damaged_error(self.path, message, inode) from error
            if not operational:
                raise
            if folder := next((file for file in self._files() if file.is_dir()), None):
                raise self._damaged_error(folder, "is a folder, and a database belongs there", inode) from error
            remedies = [remedy for words, remedy in _REMEDIES.items() if words in message]
            if not remedies:
                raise
            raise DataError(self.path, "", message, remedies[0]) from error

    def damaged_error(self, why: str) -> DamagedDatabaseError:
        """Return an error which says that the content of this file differs from what was written."""
        return self._damaged_error(self.path, why, self._inode)

    def _damaged_error(self, file: Path, why: str, inode: int | None) -> DamagedDatabaseError:
        error = DamagedDatabaseError(file, "", why, self._remedy)
        error.inode = inode
        return error

    def run_or_recreate(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result. If the file is damaged or of another version, call it again with a new
        file.

        This is for content that can be computed again. `work` must be repeatable. Raises `DataError` if the file cannot
        be used now.
        """
        try:
            return work()
        except UnusableFileError as error:
            self.set_aside(error)
            return work()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading. If there is no file yet, none is created; the tables are then empty."""
        if self._connection is None and self._is_absent():
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                for statement in self._schema:
                    connection.execute(statement)
                yield connection
            return
        with self.connection() as connection:
            yield connection

    def _is_absent(self) -> bool:
        folder = next(parent for parent in self.path.absolute().parents if parent.exists())
        return folder.is_dir() and not has_content(self.path)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction that holds the write lock from its start, so that values read in it stay
        valid."""
        with self.connection() as connection, _transaction(connection):
            yield connection

    def close(self) -> None:
        """Close this process's connection. The next use opens a new one."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def delete(self) -> None:
        """Close the connection and delete the file. No other process may be using it."""
        self.close()
        for file in reversed(self._files()):
            file.unlink(missing_ok=True)

    def set_aside(self, why: UnusableFileError) -> Path | None:
        """Rename an unusable file and return its new path. The next use creates a new file.

        Returns None, and renames nothing, if another thread or process has replaced the file since the error `why` was
        raised.
        """
        with self._lock:
            self.close()
            if _read_inode(self.path) != why.inode:
                return None
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
            log.warning(
                "%s cannot be used (%s): it was renamed to %s, and a new file is begun", self.path, why.problem,
                aside.name,
            )  # fmt: skip
            for source in self._files():
                if source.exists():
                    source.replace(aside.with_name(source.name.replace(self.path.name, aside.name, 1)))
        return aside

    def _files(self) -> tuple[Path, ...]:
        """Return the paths of the file, its write-ahead log, and the log's index."""
        return self.path, *(self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm"))

    def _open(self) -> sqlite3.Connection:
        # A connection inherited through a fork is only dereferenced, because using or closing it would release the
        # parent's locks.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA cache_size=-{PAGE_CACHE_KIB}")
            if not self._has_current_tables(connection):
                self._create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        """Create all tables in one transaction, so that a killed process leaves an empty file."""
        with _transaction(connection):
            if self._has_current_tables(connection):  # another process has created them meanwhile
                return
            found = _read_version(connection)
            if found in self._earlier:
                log.warning("%s is of an earlier version of Podium, and its content is carried over", self.path)
            for statement in self._earlier.get(found, self._schema):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self._version}")

    def _has_current_tables(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has the tables of this version; False for a new file and for one that has to be
        upgraded.

        Raises `OtherVersionError` for all other versions.
        """
        # The tables are looked up before the version, because another process may create both in one transaction.
        tables = _has_tables(connection)
        version = _read_version(connection)
        if version == self._version:
            return True
        if (version or tables) and version not in self._earlier:
            raise OtherVersionError(
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
    """Switch a new file to WAL mode, with retries, because SQLite fails at once if several processes do so at the same
    time."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _read_inode(file: Path) -> int | None:
    """Return the inode number of a file; None if there is no such file."""
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def has_content(path: Path) -> bool:
    """Return whether a SQLite file, or its log, is not empty. A folder in the place of one of them counts as
    content."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return any(file.is_dir() or (file.exists() and file.stat().st_size > 0) for file in files)


def split_into_batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield parts of `values` that are small enough for one SQL statement."""
    return (
        values[start : start + _MAX_VALUES_PER_STATEMENT] for start in range(0, len(values), _MAX_VALUES_PER_STATEMENT)
    )


def placeholders(values: Sequence[str]) -> str:
    """Return the placeholders ("?,?,?") of these values for the `IN (…)` of a statement."""
    return ",".join("?" * len(values))
