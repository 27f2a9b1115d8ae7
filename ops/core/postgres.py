"""A connection to a team's Postgres server that is opened again after a restart of the server and after a fork."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ops.core.errors import ConfigError, PodiumError, first_line
from ops.core.installation import install_extra_command
from ops.core.servers import check_address, hide_password

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_CONNECT_S = 10


class PostgresServer:
    """The tables of one part of Podium (store or ledger) in a schema of their own in the Postgres database at `url`.

    - `variable` is the environment variable that holds the URL.
    - `what` is the part's name in messages ("ledger").
    - `version` and `tables` are the version of the tables and the statements that create them. `earlier` maps an
      earlier version to the statements that upgrade its tables to `version`.
    - `lock` is the number of the advisory lock under which they are created.
    - `unavailable` makes the error that is raised after the server has not answered for `patience_s` seconds.

    Raises `ConfigError` for an invalid URL, if the package `psycopg` is missing, and for tables of another `version`.
    """

    def __init__(
        self,
        url: str,
        variable: str,
        what: str,
        *,
        version: int,
        tables: Sequence[str],
        earlier: Mapping[int, Sequence[str]] | None = None,
        lock: int,
        unavailable: Callable[[str], PodiumError],
        patience_s: float = 60.0,
    ) -> None:
        check_address(url, variable)
        self.name = hide_password(url)
        self._url, self._variable, self._what = url, variable, what
        self._version, self._tables, self._earlier, self._advisory_lock = version, tables, earlier or {}, lock
        self._unavailable, self._patience_s = unavailable, patience_s
        self._psycopg = _psycopg(variable, self.name)
        self._lock = threading.RLock()
        self._connection: Any = None
        self._pid = os.getpid()
        self._inherited: list[Any] = []
        # After a fork, the parent's connections stay open, because closing them here would end the parent's sessions.

    def run(self, work: Callable[[Any], T]) -> T:
        """Call `work` with the connection, which is in autocommit mode, and return its result.

        If the connection breaks, `work` is called again with a new one, with exponential backoff between the attempts.
        It must therefore be idempotent: it is also repeated if only the confirmation of a commit was lost. Only one
        thread at a time runs `work`. Raises the error of `unavailable` after `patience_s` seconds without an answer.
        """
        deadline, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            with self._lock:
                self._after_fork()
                try:
                    return work(self._connect())
                except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
                    self._drop()
                    if time.monotonic() + pause > deadline:
                        # The message may contain the address with user and database, but never the password.
                        raise self._unavailable(
                            f"the {self._what} {self.name} does not answer ({first_line(error)}); no paid call is made "
                            f"until it does. Start the server, or correct {self._variable}, and run the same command "
                            "again"
                        ) from None
                    if pause == _FIRST_PAUSE_S:
                        log.warning("the %s %s does not answer: waiting for it", self._what, self.name)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def attempt(self, work: Callable[[Any], object], *, if_: Callable[[], bool]) -> None:
        """Call `work` once if the condition `if_` holds. If the connection breaks, it is closed, and the next use opens
        a new one."""
        with self._lock:
            self._after_fork()
            if not if_():
                return
            try:
                work(self._connect())
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                self._drop()

    def close(self) -> None:
        """Close this process's connection. The next use opens a new one."""
        with self._lock:
            self._after_fork()
            self._drop()

    def _connect(self) -> Any:
        if self._connection is None or self._connection.closed:
            connection = self._psycopg.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_S,
                application_name=f"podium {self._what}", options=f"-c search_path={self._schema}",
            )  # fmt: skip
            self._make_tables(connection)
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            if self._connection is not None:
                self._inherited.append(self._connection)
            self._connection, self._pid = None, os.getpid()

    @property
    def _schema(self) -> str:
        return f"podium_{self._what}"

    def _make_tables(self, connection: Any) -> None:
        """Create or upgrade the tables if necessary. Raises `ConfigError` for tables of another version."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._advisory_lock,))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            connection.execute("CREATE TABLE IF NOT EXISTS version (steps INTEGER NOT NULL)")
            row = connection.execute("SELECT steps FROM version").fetchone()
            if row is None or row[0] in self._earlier:
                for statement in self._tables if row is None else self._earlier[row[0]]:
                    connection.execute(statement)
                connection.execute("DELETE FROM version")
                connection.execute("INSERT INTO version VALUES (%s)", (self._version,))
            elif row[0] != self._version:
                raise ConfigError(
                    self._variable, self.name,
                    f"holds tables of version {row[0]}, and this version of Podium uses version {self._version}",
                    "Use the same version of Podium on all machines, or name another database",
                )  # fmt: skip


def _psycopg(variable: str, name: str) -> Any:
    try:
        import psycopg
    except ImportError:  # also if it is installed and finds no libpq
        raise ConfigError(
            variable, name, "needs the Postgres client, which is not installed", f"Run {install_extra_command('team')}"
        ) from None
    return psycopg
