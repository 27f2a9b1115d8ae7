"""Claims on keys: one process or thread computes a value or makes a call, and the others wait for the stored result.

On one machine, claims are rows of a SQLite file. For a team, they are leases on the server that holds the store.
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
"""`until` is 0 before the call is sent. Afterwards it is the time from which its answer can no longer arrive, in
seconds since the epoch."""
_OWN_ROW = "key = ? AND pid = ? AND started = ?"
_INSERT = "INSERT OR IGNORE INTO claims (key, pid, started) VALUES {} RETURNING key"
_SENT = "UPDATE claims SET until = ? WHERE pid = ? AND started = ? AND key IN ({}) RETURNING key"
_TAKE_OVER = f"UPDATE claims SET pid = ?, started = ?, until = 0 WHERE {_OWN_ROW} AND until = ?"
_STATE_LIFETIME_S = 0.25
"""Seconds for which the state of another process is cached."""


_MAX_WAIT_S = 86_400.0
"""No answer takes longer than this (seconds). A later `until` was written before the clock was set back."""


class LocalClaim:
    """A claim on one key, which lasts until it is released or its process ends."""

    def __init__(self, claims: LocalClaims, key: str) -> None:
        self._claims, self._key = claims, key

    def release(self) -> None:
        """Release the claim, so that another process can compute the value."""
        self._claims.release(self._key)


class LocalClaims:
    """Claims by name (`claim_name`) in the file `claims.sqlite` of the store's folder.

    They have a file of their own because they change all the time and may be lost, while the file of paid responses is
    written only when a value is stored. If the file of claims is damaged, it is renamed and a new one is created; calls
    that are in flight may then be made twice.

    A claim ends when its value is stored, when it is released, or when its process ends. The claim of a process that
    has ended can be taken over, but not before `until`, because a sent call may have been served and must then be paid
    for. The claim of a suspended process can be taken over in the same way. Such a process notices the loss before it
    sends its call (`mark_sent`).
    """

    def __init__(self, folder: Path) -> None:
        self._file = SqliteFile(folder / "claims.sqlite", _VERSION, _SCHEMA, is_disposable=True)
        self._held: set[str] = set()
        self._abandoned: set[str] = set()
        """Keys whose release could not be written to the file. Their rows in the file are not valid any more."""
        self._states: dict[ProcessId, tuple[State, float]] = {}
        self._lock = threading.Lock()
        self._swept = self._warned = False

    def try_claim(self, keys: Sequence[str]) -> list[LocalClaim | None]:
        """Claim keys in one transaction. Returns for each key, in order, its claim, or None if another holder has it.

        Callers that wait for a key only read: a transaction begins only if at least one key can be claimed.
        """
        return self._file.run_or_recreate(lambda: self._try_claim_once(keys))

    def _try_claim_once(self, keys: Sequence[str]) -> list[LocalClaim | None]:
        if not self._swept:
            self._sweep()
        rows: dict[str, list[Any]] = {}
        with self._file.connection() as connection:
            for batch in split_into_batches(keys):
                query = f"SELECT key, pid, started, until FROM claims WHERE key IN ({placeholders(batch)})"
                rows |= {key: row for key, *row in connection.execute(query, batch)}
        self._check_holders(row[:2] for row in rows.values())
        valid_rows = {key: row for key, row in rows.items() if key not in self._abandoned}
        held_rows = {key: row for key, row in valid_rows.items() if not self._may_be_taken(ProcessId(*row[:2]), row[2])}
        claimed: set[str] = set()
        if free := [key for key in keys if key not in held_rows]:
            with self._file.writing() as connection:
                claimed = _take(connection, free, rows)
        with self._lock:
            self._held |= claimed
            self._abandoned -= claimed
        claims: list[LocalClaim | None] = []
        for key in keys:  # if several callers ask for a key in the same batch, the first one gets the claim
            claims.append(LocalClaim(self, key) if key in claimed else None)
            claimed.discard(key)
        return claims

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """Record that the calls of these keys are sent now. Returns the keys that this process still holds.

        `seconds` maps each key to the time, in seconds, within which its answer may arrive.
        """
        return self._file.run_or_recreate(lambda: self._mark_sent_once(seconds))

    def _mark_sent_once(self, seconds: Mapping[str, float]) -> set[str]:
        now = time.time()
        still_held: set[str] = set()
        with self._file.writing() as connection:
            for remaining_s in set(seconds.values()):
                for batch in split_into_batches([key for key in seconds if seconds[key] == remaining_s]):
                    update = connection.execute(
                        _SENT.format(placeholders(batch)), (now + remaining_s, *this_process(), *batch)
                    )
                    still_held.update(key for (key,) in update.fetchall())
        return still_held

    def release(self, key: str) -> None:
        """Release the claim on a key. Does nothing if the response was stored, which has ended the claim."""
        with self._lock:
            if key not in self._held:
                return
            self._held.remove(key)
        with self._abandon_if_unwritable([key]):
            self._file.run_or_recreate(
                lambda: self._execute(f"DELETE FROM claims WHERE {_OWN_ROW}", [(key, *this_process())])
            )

    def release_stored(self, keys: Sequence[str]) -> None:
        """Release the claims on these keys, whose values have been stored now."""
        with self._lock:
            self._held.difference_update(keys)
        with self._abandon_if_unwritable(keys):
            self._file.run_or_recreate(
                lambda: self._execute("DELETE FROM claims WHERE key = ?", [(key,) for key in keys])
            )

    @contextmanager
    def _abandon_if_unwritable(self, keys: Sequence[str]) -> Iterator[None]:
        """Remember these keys as abandoned if the block raises, so that this process does not wait for its own
        claims."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._abandoned.update(keys)
            raise

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._file.close()

    def _execute(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        with self._file.writing() as connection:
            connection.executemany(statement, values)

    def _check_holders(self, holders: Iterable[Sequence[Any]]) -> None:
        """Raise `DamagedDatabaseError` unless these are pairs of a process id and a start number."""
        if not all(isinstance(pid, int) and isinstance(started, int | float) for pid, started in holders):
            raise self._file.damaged_error("a claim is not what was written")

    def _may_be_taken(self, holder: ProcessId, until: float) -> bool:
        state = self._process_state(holder)
        if state == "running":
            return False
        remaining_s = until - time.time()
        if remaining_s > _MAX_WAIT_S:
            return True
        if remaining_s > 0 and not self._warned:
            self._warned = True
            log.warning(
                "a process that is %s has sent calls that are paid for: their questions are asked again when their "
                "time-outs have passed, this one in %.0f s", state, remaining_s,
            )  # fmt: skip
        return remaining_s <= 0

    def _process_state(self, process: ProcessId) -> State:
        state, until = self._states.get(process, ("gone", 0.0))
        if time.monotonic() > until:
            state = process_state(process)
            self._states[process] = state, time.monotonic() + _STATE_LIFETIME_S
        return state

    def _sweep(self) -> None:
        """Delete the claims of ended processes whose answers can no longer arrive."""
        self._swept = True
        with self._file.connection() as connection:
            rows = connection.execute("SELECT DISTINCT pid, started FROM claims").fetchall()
        self._check_holders(rows)
        if ended := [holder for holder in (ProcessId(*row) for row in rows) if process_state(holder) == "gone"]:
            query = "DELETE FROM claims WHERE pid = ? AND started = ? AND until <= ?"
            self._execute(query, [(*holder, time.time()) for holder in ended])


def _take(connection: sqlite3.Connection, keys: Sequence[str], rows: Mapping[str, Sequence[float]]) -> set[str]:
    """Take over claims that are still in the state `rows`, or still free if they are not in `rows`. Returns the claimed
    keys."""
    claimed: set[str] = set()
    for batch in split_into_batches([key for key in keys if key not in rows]):
        inserted = connection.execute(_INSERT.format(", ".join(["(?, ?, ?)"] * len(batch))), [
            value for key in batch for value in (key, *this_process())
        ])  # fmt: skip
        claimed.update(key for (key,) in inserted.fetchall())
    for key in rows.keys() & keys:
        if connection.execute(_TAKE_OVER, (*this_process(), key, *rows[key])).rowcount == 1:
            claimed.add(key)
    return claimed


# ── claims of a team ─────────────────────────────────────────────────────────


class Lease(NamedTuple):
    """The lease of one claim: a token that only its holder knows, and its duration in seconds from now."""

    token: str
    seconds: float


class LeaseServer(Protocol):
    """A server that holds leases by name. Each method raises `CacheUnavailable` if the server does not answer."""

    def acquire(self, names: Sequence[str], lease: Lease) -> Sequence[bool]:
        """Acquire the lease of each name that is free. Returns for each name whether it was acquired."""
        ...

    def renew(self, leases: Mapping[str, Lease]) -> set[str]:
        """Set the remaining durations of leases. Returns the names of those that are still held with these tokens."""
        ...

    def release(self, name: str, token: str) -> None:
        """End a lease, unless another holder has acquired it."""
        ...


class LeasedClaim:
    """A claim on one name on a server, which lasts until it is released or its lease expires."""

    def __init__(self, claims: LeasedClaims, name: str, token: str) -> None:
        self._claims, self._name, self._token = claims, name, token

    def release(self) -> None:
        """Release the claim. If the server does not answer, the lease expires by itself."""
        with suppress(CacheUnavailable):
            self._claims.release(self._name, self._token)


class LeasedClaims:
    """The claims of this process on a server.

    Each claim is a lease of `lease_s` seconds, which a background thread renews. After the death of the process it
    expires, but not before no answer to a sent call can arrive any more.
    """

    def __init__(self, server: LeaseServer, lease_s: float) -> None:
        self._server, self._lease_s = server, lease_s
        self._leases = LeaseRenewer[str, tuple[str, float]]("cache claims", lease_s / 3, self._renew)
        """Maps a name to its token and to the time (monotonic clock) until which the answer to a sent call may
        arrive."""

    def try_claim(self, names: Sequence[str]) -> list[LeasedClaim | None]:
        """Claim names. Returns for each name, in order, its claim, or None if another holder has it."""
        token = secrets.token_hex(16)
        acquired = self._server.acquire(names, Lease(token, self._lease_s))
        claims = [
            LeasedClaim(self, name, token) if is_acquired else None
            for name, is_acquired in zip(names, acquired, strict=True)
        ]
        with self._leases.locked() as held:
            held.update((name, (token, 0.0)) for name, is_acquired in zip(names, acquired, strict=True) if is_acquired)
        return claims

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """Record that the calls of these names are sent now (see `LocalClaims.mark_sent`). Returns the names still
        held."""
        with self._leases.locked() as held:
            tokens = {name: held[name][0] for name in seconds.keys() & held.keys()}
        until = {name: time.monotonic() + seconds[name] for name in tokens}
        kept = self._server.renew({name: self._lease(token, until[name]) for name, token in tokens.items()})
        with self._leases.locked() as held:
            held.update((name, (tokens[name], until[name])) for name in kept & held.keys())
        return kept

    def release(self, name: str, token: str) -> None:
        """Release the claim on a name."""
        with self._leases.locked() as held:
            if held.get(name, ("",))[0] == token:
                del held[name]
        self._server.release(name, token)

    def _renew(self, held: dict[str, tuple[str, float]]) -> None:
        # An error is not reported here, because the calls that hold these claims receive one themselves.
        with suppress(CacheUnavailable):
            self._server.renew({name: self._lease(token, until) for name, (token, until) in held.items()})

    def _lease(self, token: str, until: float) -> Lease:
        return Lease(token, max(self._lease_s, until - time.monotonic()))
