"""One SQLite file, opened so that many processes and threads may use it together.

What belongs here: connecting, WAL, waiting for other writers, living through a fork.
What does not: tables; the cache and the ledger make their own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY_TIMEOUT_S = 60.0
"""How long a writer waits for the writers of other processes."""


class SqliteFile:
    """A SQLite file in WAL mode, with one connection per process behind a lock.

    With ``synchronous=NORMAL`` a committed row outlives the death of every process
    (kill -9 included); a power cut can cost the commits since the last checkpoint,
    and never damages the file.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """The connection, in autocommit mode, for this thread alone while in the block."""
        with self._lock:
            if self._connection is None or self._pid != os.getpid():
                self._connection, self._pid = self._open(), os.getpid()
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start: what it reads stays true."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close this process's connection; the next use opens a new one."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        # A connection inherited through a fork must be neither used nor closed: both
        # would release locks that the parent holds. It is only forgotten.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(self._schema)
        except sqlite3.Error:
            connection.close()
            raise
        return connection
