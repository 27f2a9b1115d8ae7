"""Claims of the local cache: of all processes of this machine one makes a call, and the others wait for it.

What belongs here: who has a claim, and when another may take it over. What does not:
waiting (front), and what a call may cost (ledger).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence

from ops.workers.cache.backend import ClaimLost
from ops.workers.processes import ProcessId, State, state_of, this_process
from ops.workers.store import SqliteFile, statements

log = logging.getLogger(__name__)

CLAIMS = statements(
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, pid INTEGER NOT NULL, started REAL NOT NULL, until REAL NOT NULL DEFAULT 0
    ) WITHOUT ROWID"""
)
"""`until`: 0 before the call was sent; then when its answer can no longer come (seconds since the epoch)."""
_MINE = "key = ? AND pid = ? AND started = ?"
_LOOK_AGAIN_S = 0.25
"""So long another process is taken to be in the state that it was last seen in."""


class LocalClaim:
    """The claim of one key, until it is released or its process is gone."""

    def __init__(self, claims: LocalClaims, key: str) -> None:
        self._claims, self._key = claims, key

    def sent(self, seconds: float) -> None:
        self._claims.mark_sent(self._key, seconds)

    def release(self) -> None:
        self._claims.drop(self._key)


class LocalClaims:
    """The table `claims` of a cache's file, as this process sees it.

    A claim ends with its response's being stored, with its release, or with its process: a claim
    of a process that is gone is taken over, but not before `until`: the call that it had sent may
    have been served, and is paid for. One that is suspended may lose its claim likewise; it hears
    of that before it sends its call.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._held: set[str] = set()
        self._states: dict[ProcessId, tuple[State, float]] = {}
        self._lock = threading.Lock()
        self._swept = self._warned = False

    def take(self, keys: Sequence[str]) -> list[LocalClaim | None]:
        """Take the claim of each key, in one transaction; None for those that others have.

        Who waits only reads: a transaction begins when there is something to take.
        """
        if not self._swept:
            self._sweep()
        query = "SELECT pid, started, until FROM claims WHERE key = ?"
        with self._file.connection() as connection:
            rows = [connection.execute(query, (key,)).fetchone() for key in keys]
        free = [row is None or self._may_be_taken(ProcessId(*row[:2]), row[2]) for row in rows]
        taken = [False] * len(keys)
        if any(free):
            with self._file.writing() as connection:
                taken = [
                    is_free and _take(connection, key, row) for key, row, is_free in zip(keys, rows, free, strict=True)
                ]
        with self._lock:
            self._held.update(key for key, is_ours in zip(keys, taken, strict=True) if is_ours)
        return [LocalClaim(self, key) if is_ours else None for key, is_ours in zip(keys, taken, strict=True)]

    def mark_sent(self, key: str, seconds: float) -> None:
        """Note that the call leaves now, and may be answered for so long. Raises `ClaimLost`."""
        values = (time.time() + seconds, key, *this_process())
        with self._file.connection() as connection:
            if connection.execute(f"UPDATE claims SET until = ? WHERE {_MINE}", values).rowcount != 1:
                raise ClaimLost

    def drop(self, key: str) -> None:
        """Give a claim up, unless its response was stored: then it is gone already."""
        with self._lock:
            if key not in self._held:
                return
            self._held.remove(key)
        with self._file.connection() as connection:
            connection.execute(f"DELETE FROM claims WHERE {_MINE}", (key, *this_process()))

    def ended(self, keys: Iterable[str]) -> None:
        """The rows of these keys were deleted, with their responses' being stored."""
        with self._lock:
            self._held.difference_update(keys)

    def _may_be_taken(self, holder: ProcessId, until: float) -> bool:
        state = self._state(holder)
        if state == "running":
            return False
        rest = until - time.time()
        if rest > 0 and not self._warned:
            self._warned = True
            log.warning(
                "a process that is %s has sent calls that are paid for: their questions are asked again when their "
                "time-outs have passed, this one in %.0f s", state, rest,
            )  # fmt: skip
        return rest <= 0

    def _state(self, process: ProcessId) -> State:
        state, until = self._states.get(process, ("gone", 0.0))
        if time.monotonic() > until:
            state = state_of(process)
            self._states[process] = state, time.monotonic() + _LOOK_AGAIN_S
        return state

    def _sweep(self) -> None:
        """Delete what processes left behind that are gone, where no answer can come any more."""
        self._swept = True
        with self._file.connection() as connection:
            holders = [ProcessId(*row) for row in connection.execute("SELECT DISTINCT pid, started FROM claims")]
        if gone := [holder for holder in holders if state_of(holder) == "gone"]:
            with self._file.writing() as connection:
                query = "DELETE FROM claims WHERE pid = ? AND started = ? AND until <= ?"
                connection.executemany(query, [(*holder, time.time()) for holder in gone])


def _take(connection: sqlite3.Connection, key: str, row: tuple[int, float, float] | None) -> bool:
    """Take a claim that was free, or held as `row` says, when it was looked at; whether it still was."""
    if row is None:
        query = "INSERT OR IGNORE INTO claims (key, pid, started) VALUES (?, ?, ?)"
        return connection.execute(query, (key, *this_process())).rowcount == 1
    query = f"UPDATE claims SET pid = ?, started = ?, until = 0 WHERE {_MINE} AND until = ?"
    return connection.execute(query, (*this_process(), key, *row)).rowcount == 1
