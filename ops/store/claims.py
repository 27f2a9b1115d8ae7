"""Claims: one process or thread computes a value or makes a call, and the others wait for what it stores.

Those of one machine are in a SQLite file; those of a team are leases in the server that has the entries.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ops.core.errors import CacheUnavailable
from ops.core.processes import ProcessId, State, process_state, this_process
from ops.core.servers import LeaseRenewer
from ops.core.sqlite import SqliteFile, placeholders, split_into_batches

log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = (
    """CREATE TABLE claims (
        key TEXT PRIMARY KEY, pid INTEGER NOT NULL, started REAL NOT NULL, until REAL NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
)
"""`until`: 0 before the call is sent; then the time from which its answer can no longer arrive (seconds since the
epoch)."""
_OWN_ROW = "key = ? AND pid = ? AND started = ?"
_INSERT = "INSERT OR IGNORE INTO claims (key, pid, started) VALUES {} RETURNING key"
_SENT = "UPDATE claims SET until = ? WHERE pid = ? AND started = ? AND key IN ({}) RETURNING key"
_TAKE_OVER = f"UPDATE claims SET pid = ?, started = ?, until = 0 WHERE {_OWN_ROW} AND until = ?"
_STATE_LIFETIME_S = 0.25
"""Seconds for which the last known state of another process is assumed."""


_MAX_WAIT_S = 86_400.0
"""No answer takes longer (seconds); a later `until` was noted before the clock was set back."""


class LocalClaim:
    """The claim of one key, until it is released or its process ends."""

    def __init__(self, claims: LocalClaims, key: str) -> None:
        self._claims, self._key = claims, key

    def release(self) -> None:
        self._claims.release(self._key)


class LocalClaims:
    """The claims in `claims.sqlite` of the store's folder, by their names (`claim_name`).

    They have a file of their own because they come and go all the time and may be lost, while the file of paid
    responses is written only when a value is stored. A damaged file of claims is renamed, and a new one is begun: the
    calls of running processes may then be made twice.

    A claim ends when its value is stored, with its release, or with its process. The claim of an ended process is taken
    over, but not before `until`, because a sent call may have been served and is paid for. A suspended process may lose
    its claim likewise; it detects this before it sends its call.
    """

    def __init__(self, folder: Path) -> None:
        self._file = SqliteFile(folder / "claims.sqlite", _VERSION, _SCHEMA, is_disposable=True)
        self._held: set[str] = set()
        self._abandoned: set[str] = set()
        """Keys that were given up when the file could not be written: its rows of them are not valid any more."""
        self._states: dict[ProcessId, tuple[State, float]] = {}
        self._lock = threading.Lock()
        self._swept = self._warned = False

    def try_claim(self, keys: Sequence[str]) -> list[LocalClaim | None]:
        """Claim each key in one transaction; None for keys that others hold.

        Waiting callers only read: a transaction begins only if there is a key to claim.
        """
        return self._file.run_or_recreate(lambda: self._try_claim_once(keys))

    def _try_claim_once(self, keys: Sequence[str]) -> list[LocalClaim | None]:
        if not self._swept:
            self._sweep()
        rows: dict[str, list[Any]] = {}
        with self._file.connection() as connection:
            for some in split_into_batches(keys):
                query = f"SELECT key, pid, started, until FROM claims WHERE key IN ({placeholders(some)})"
                rows |= {key: row for key, *row in connection.execute(query, some)}
        self._check_holders(row[:2] for row in rows.values())
        others = {key: row for key, row in rows.items() if key not in self._abandoned}
        held = {key: row for key, row in others.items() if not self._may_be_taken(ProcessId(*row[:2]), row[2])}
        taken: set[str] = set()
        if free := [key for key in keys if key not in held]:
            with self._file.writing() as connection:
                taken = _take(connection, free, rows)
        with self._lock:
            self._held |= taken
            self._abandoned -= taken
        claims: list[LocalClaim | None] = []
        for key in keys:  # of several callers for one key in the same turn, the first has the claim
            claims.append(LocalClaim(self, key) if key in taken else None)
            taken.discard(key)
        return claims

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """Record that the calls of these keys are sent now, and for how long an answer may arrive. Returns the keys
        still held."""
        return self._file.run_or_recreate(lambda: self._mark_sent_once(seconds))

    def _mark_sent_once(self, seconds: Mapping[str, float]) -> set[str]:
        now = time.time()
        ours: set[str] = set()
        with self._file.writing() as connection:
            for rest in set(seconds.values()):
                for some in split_into_batches([key for key in seconds if seconds[key] == rest]):
                    update = connection.execute(_SENT.format(placeholders(some)), (now + rest, *this_process(), *some))
                    ours.update(key for (key,) in update.fetchall())
        return ours

    def release(self, key: str) -> None:
        """Give a claim up, unless its response was stored, which ended it."""
        with self._lock:
            if key not in self._held:
                return
            self._held.remove(key)
        with self._abandon_if_unwritable([key]):
            self._file.run_or_recreate(
                lambda: self._execute(f"DELETE FROM claims WHERE {_OWN_ROW}", [(key, *this_process())])
            )

    def release_stored(self, keys: Sequence[str]) -> None:
        """Release the claims of these keys, whose responses are stored now."""
        with self._lock:
            self._held.difference_update(keys)
        with self._abandon_if_unwritable(keys):
            self._file.run_or_recreate(
                lambda: self._execute("DELETE FROM claims WHERE key = ?", [(key,) for key in keys])
            )

    @contextmanager
    def _abandon_if_unwritable(self, keys: Sequence[str]) -> Iterator[None]:
        """Remember these keys if the file cannot be written in the block, so that this process does not wait for
        itself."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._abandoned.update(keys)
            raise

    def close(self) -> None:
        self._file.close()

    def _execute(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        with self._file.writing() as connection:
            connection.executemany(statement, values)

    def _check_holders(self, holders: Iterable[Sequence[Any]]) -> None:
        """Raise `Damaged` unless these are numbers of processes and their times."""
        if not all(isinstance(pid, int) and isinstance(started, int | float) for pid, started in holders):
            raise self._file.damaged_error("a claim is not what was written")

    def _may_be_taken(self, holder: ProcessId, until: float) -> bool:
        state = self._process_state(holder)
        if state == "running":
            return False
        rest = until - time.time()
        if rest > _MAX_WAIT_S:
            return True
        if rest > 0 and not self._warned:
            self._warned = True
            log.warning(
                "a process that is %s has sent calls that are paid for: their questions are asked again when their "
                "time-outs have passed, this one in %.0f s", state, rest,
            )  # fmt: skip
        return rest <= 0

    def _process_state(self, process: ProcessId) -> State:
        state, until = self._states.get(process, ("gone", 0.0))
        if time.monotonic() > until:
            state = process_state(process)
            self._states[process] = state, time.monotonic() + _STATE_LIFETIME_S
        return state

    def _sweep(self) -> None:
        """Delete claims of ended processes whose answers can no longer arrive."""
        self._swept = True
        with self._file.connection() as connection:
            rows = connection.execute("SELECT DISTINCT pid, started FROM claims").fetchall()
        self._check_holders(rows)
        if gone := [holder for holder in (ProcessId(*row) for row in rows) if process_state(holder) == "gone"]:
            query = "DELETE FROM claims WHERE pid = ? AND started = ? AND until <= ?"
            self._execute(query, [(*holder, time.time()) for holder in gone])


def _take(connection: sqlite3.Connection, keys: Sequence[str], rows: Mapping[str, Sequence[float]]) -> set[str]:
    """Take claims that were free, or held as in `rows`, when they were read. Returns those that were unchanged."""
    taken: set[str] = set()
    for some in split_into_batches([key for key in keys if key not in rows]):
        new = connection.execute(_INSERT.format(", ".join(["(?, ?, ?)"] * len(some))), [
            value for key in some for value in (key, *this_process())
        ])  # fmt: skip
        taken.update(key for (key,) in new.fetchall())
    for key in rows.keys() & keys:
        if connection.execute(_TAKE_OVER, (*this_process(), key, *rows[key])).rowcount == 1:
            taken.add(key)
    return taken


# ── claims of a team ─────────────────────────────────────────────────────────


class Lease(NamedTuple):
    """The lease of one claim: the token that only its holder knows, and for how long it lasts from now."""

    token: str
    seconds: float


class LeaseServer(Protocol):
    """A server that keeps leases by name. The methods raise `CacheUnavailable` if it does not answer."""

    def acquire(self, names: Sequence[str], lease: Lease) -> Sequence[bool]:
        """Take the lease of each name that is free; return which were taken."""
        ...

    def renew(self, leases: Mapping[str, Lease]) -> set[str]:
        """Let these leases last as they say from now on; return the names of those that are still held."""
        ...

    def release(self, name: str, token: str) -> None:
        """End a lease, unless another holder has it."""
        ...


class LeasedClaim:
    """The claim of one name at a server, until it is released or its process dies."""

    def __init__(self, claims: LeasedClaims, name: str, token: str) -> None:
        self._claims, self._name, self._token = claims, name, token

    def release(self) -> None:
        """Release the claim. If the server is gone, the claim expires by itself."""
        with suppress(CacheUnavailable):
            self._claims.release(self._name, self._token)


class LeasedClaims:
    """This process's claims at a server.

    A claim expires `lease_s` seconds after its process died, or when no answer to its call can come any more; a running
    process renews it.
    """

    def __init__(self, server: LeaseServer, lease_s: float) -> None:
        self._server, self._lease_s = server, lease_s
        self._leases = LeaseRenewer[str, tuple[str, float]]("cache claims", lease_s / 3, self._renew)
        """Name → token, and the time until which an answer to a sent call may arrive (monotonic clock)."""

    def try_claim(self, names: Sequence[str]) -> list[LeasedClaim | None]:
        """Claim each name; None for those that others hold."""
        token = secrets.token_hex(16)
        taken = self._server.acquire(names, Lease(token, self._lease_s))
        claims = [LeasedClaim(self, name, token) if own else None for name, own in zip(names, taken, strict=True)]
        with self._leases.locked() as held:
            held.update((name, (token, 0.0)) for name, own in zip(names, taken, strict=True) if own)
        return claims

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """See `LocalClaims.mark_sent`."""
        with self._leases.locked() as held:
            tokens = {name: held[name][0] for name in seconds.keys() & held.keys()}
        until = {name: time.monotonic() + seconds[name] for name in tokens}
        kept = self._server.renew({name: self._lease(token, until[name]) for name, token in tokens.items()})
        with self._leases.locked() as held:
            held.update((name, (tokens[name], until[name])) for name in kept & held.keys())
        return kept

    def release(self, name: str, token: str) -> None:
        """Give a claim up."""
        with self._leases.locked() as held:
            if held.get(name, ("",))[0] == token:
                del held[name]
        self._server.release(name, token)

    def _renew(self, held: dict[str, tuple[str, float]]) -> None:
        # The calls that hold these claims receive an error themselves.
        with suppress(CacheUnavailable):
            self._server.renew({name: self._lease(token, until) for name, (token, until) in held.items()})

    def _lease(self, token: str, until: float) -> Lease:
        return Lease(token, max(self._lease_s, until - time.monotonic()))
