"""The budget ledger: every amount is reserved before it is spent and recorded afterwards.

Invariant at every commit and over all processes: settled + lost + reserved <= cap.

A process reserves in blocks, so most calls cost two small transactions (sending and settling); a settled call is on
disk when `settle` returns. When a process was killed, reservations of unsent calls are released. Its sent calls are
*lost*: their cost is unknown and the provider may bill them, so their worst case counts as spent until the same
question is answered again and its cost is known.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ops.core.errors import OverBudget
from ops.core.processes import ProcessId
from ops.core.usage import Usage
from ops.spending.bookings import LedgerReader, current_month
from ops.spending.ledger_store import LEDGER_URL, LedgerStore, SqlConnection

_SETTLE = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, purpose, worker, month) DO UPDATE SET
    calls = spending.calls + excluded.calls,
    prompt_tokens = spending.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = spending.completion_tokens + excluded.completion_tokens,
    usd = spending.usd + excluded.usd
"""
_CALL = """
INSERT INTO calls (at, run, purpose, worker, prompt_tokens, completion_tokens, usd) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_SENT = """
INSERT INTO sent (id, at, run, purpose, worker, month, key, usd, pid, started) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_MEASURE = "UPDATE sent SET usd = ?, measured = 1 WHERE lost = 1 AND key = ?"
_LOSE = "UPDATE sent SET lost = 1 WHERE id = ? AND pid = ? AND started = ?"
_RECALL = "DELETE FROM sent WHERE id = ? AND pid = ? AND started = ?"
_ADD_BLOCK = "INSERT INTO blocks (run, pid, started, usd) VALUES (?, ?, ?, ?) RETURNING id"
_BLOCK_CALLS = 16
"""Number of worst-case calls in a block, if the cap is far away."""
_BLOCK_SHARE = 1 / 64
"""… and never more than this share of the cap, so that no process blocks the budget of others."""
_MAX_TOKENS = 2**40
"""The largest bill of one call, so that sums of bills fit a 64-bit integer."""
_EPSILON = 1e-9
"""USD. A rounding error of floating point must not refuse a call."""


CAP_MESSAGE = "the next call may cost"
"""Part of every message about a cap, because a trainer's errors reach its run only as text."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation of one call. Return it once through `Ledger.settle`, `Ledger.release` or `Ledger.mark_lost`."""

    run: str
    usd: float
    sent: int = 0
    """Its number among the sent calls (`Ledger.mark_sent`); 0 before, and for calls that are not billed."""


class OutgoingCall(NamedTuple):
    """A call to be sent: its reservation, its purpose, and its question's `key` in the cache."""

    reservation: Reservation
    purpose: str
    worker: str
    key: str


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one call (USD), its usage and its reservation; `key` is its question's in the cache.

    Raises `ValueError` for impossible figures: negative, not finite, beyond 64 bits.
    """

    reservation: Reservation
    purpose: str
    worker: str
    usd: float
    usage: Usage = field(default_factory=Usage)
    key: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.usd < math.inf:
            raise ValueError(f"a bill of {self.usd} USD")
        prompt, completion = self.usage.prompt_tokens, self.usage.completion_tokens
        if not (0 <= prompt <= _MAX_TOKENS and 0 <= completion <= _MAX_TOKENS):
            raise ValueError(f"a bill of {prompt} and {completion} tokens")


@dataclass
class _Block:
    """This process's share of one run's cap: `free`, and the worst case of its calls in flight."""

    id: int
    cap: float
    month_cap: float | None
    free: float = 0.0
    reserved: float = 0.0
    in_flight: int = 0

    @property
    def usd(self) -> float:
        return max(self.free, 0.0) + self.reserved


class Ledger(LedgerReader):
    """Reservations and their outcomes, in one SQLite file or another `LedgerStore` that many processes share."""

    def __init__(self, path: Path, store: LedgerStore | None = None) -> None:
        super().__init__(path, store)
        self._blocks: dict[str, _Block] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._swept = False
        self._overdue: list[tuple[str, int]] = []
        """What a store that failed has still to be told, see `_return_reserved`."""

    def reserve(self, run: str, worst_usd: float, cap_usd: float, *, month_cap_usd: float | None = None) -> Reservation:
        """Reserve a call's worst case before it is sent.

        Raises `OverBudget` if the worst case does not fit under the run's cap, or under the calendar month's (UTC, all
        runs), beside spent and reserved amounts.
        """
        return self.reserve_many(run, (worst_usd,), cap_usd, month_cap_usd=month_cap_usd)[0]

    def reserve_many(
        self, run: str, worst_usd: Sequence[float], cap_usd: float, *, month_cap_usd: float | None = None
    ) -> list[Reservation]:
        """Reserve several calls in at most one transaction; return those that fit, from the first on.

        Raises `OverBudget` if the first does not fit.
        """
        with self._lock:
            self._forget_after_fork()
            block = self._blocks.get(run)
            if block is None or block.free + _EPSILON < sum(worst_usd):
                block = self._grow_block(run, worst_usd, cap_usd, month_cap_usd)
            granted = []
            for worst in worst_usd:
                if block.free + _EPSILON < worst:
                    break
                block.free -= worst
                block.reserved += worst
                block.in_flight += 1
                granted.append(Reservation(run, worst))
        return granted

    def mark_sent(self, *calls: OutgoingCall) -> list[Reservation]:
        """Record on disk that calls are sent now, and return their reservations.

        If this process dies, they count as spent. Only for calls that a provider serves and bills.
        """
        now, month = time.time(), current_month()

        def mark(connection: SqlConnection) -> int:
            holder = self._store.holder()
            first: int = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM sent").fetchone()[0]
            connection.executemany(_SENT, [
                (first + index, now, held.run, purpose, worker, month, key, held.usd, *holder)
                for index, (held, purpose, worker, key) in enumerate(calls)
            ])  # fmt: skip
            return first

        with self._lock:
            self._forget_after_fork()
            if self._store.leased:
                self._renew_blocks({call.reservation.run for call in calls})
            first = self._store.write(mark)
        return [replace(call.reservation, sent=first + index) for index, call in enumerate(calls)]

    def unmark_sent(self, reservation: Reservation) -> None:
        """Unmark a call that was not sent; its reservation stays."""
        self._store.write(lambda connection: connection.execute("DELETE FROM sent WHERE id = ?", (reservation.sent,)))

    def settle(self, *bills: Bill) -> None:
        """Book the real cost of calls in one transaction, which is on disk when this returns.

        Lost calls of the same questions are counted at the same cost from now on. If this raises, calls that were sent
        count as lost.
        """
        now, month = time.time(), current_month()
        calls = [
            (b.reservation.run, b.purpose, b.worker, b.usage.prompt_tokens, b.usage.completion_tokens, b.usd)
            for b in bills
        ]

        def book(connection: SqlConnection) -> None:
            connection.executemany(_CALL, [(now, *call) for call in calls])
            connection.executemany(_SETTLE, [(*key, month, *sums) for key, sums in _sum_calls(calls)])
            connection.executemany(_MEASURE, [(bill.usd, bill.key) for bill in bills if bill.key])

        otherwise = [
            (_LOSE, bill.reservation, bill.reservation.usd if bill.reservation.sent else 0.0) for bill in bills
        ]
        self._return_reserved([(bill.reservation, bill.usd) for bill in bills], book, otherwise=otherwise)

    def release(self, *reservations: Reservation) -> None:
        """Release the reservations of calls that cost nothing."""
        otherwise = [(_RECALL, reservation, 0.0) for reservation in reservations]
        self._return_reserved([(reservation, 0.0) for reservation in reservations], otherwise=otherwise)

    def mark_lost(self, reservation: Reservation) -> None:
        """Count a sent call as spent at its worst case: no answer came, and it may be billed."""
        self._return_reserved(
            [(replace(reservation, sent=0), reservation.usd)],
            lambda connection: connection.execute("UPDATE sent SET lost = 1 WHERE id = ?", (reservation.sent,)),
            otherwise=[(_LOSE, reservation, reservation.usd)],
        )

    def release_ended_processes(self) -> None:
        """Release reservations of ended processes, and count their sent calls as lost."""
        if self._store.read(_list_holders):
            self._store.write(self._release_dead)
        self._swept = True

    def lost_keys_without_cost(self) -> list[str]:
        """Return the keys of lost calls whose question has no known cost yet."""
        self.release_ended_processes()
        query = "SELECT DISTINCT key FROM sent WHERE lost = 1 AND measured = 0"
        return [key for (key,) in self._store.read(lambda connection: connection.execute(query).fetchall())]

    def book_lost_calls(self, usd_by_key: Mapping[str, float]) -> None:
        """Count lost calls at the cost of the same question's answer."""
        rows = [(usd, key) for key, usd in usd_by_key.items()]
        self._store.write(lambda connection: connection.executemany(_MEASURE, rows))

    def count_in_flight(self, run: str) -> int:
        """Return the number of this process's open reservations for the run."""
        with self._lock:
            block = self._blocks.get(run)
            return block.in_flight if block and self._pid == os.getpid() else 0

    def open_reservations(self) -> dict[str, float]:
        """Return the USD that running processes hold for calls in flight (and a few later ones), by run."""
        self.release_ended_processes()
        query = "SELECT run, sum(usd) FROM blocks GROUP BY run ORDER BY run"
        return dict(self._store.read(lambda connection: connection.execute(query).fetchall()))

    def close(self) -> None:
        """Release this process's unused block and close the store; the next use opens it again."""
        with self._lock:
            self._forget_after_fork()
            idle = {run: block.id for run, block in self._blocks.items() if block.in_flight == 0}
            if idle or self._overdue:
                rows, overdue = [(number,) for number in idle.values()], list(self._overdue)

                def leave(connection: SqlConnection) -> None:
                    self._execute_overdue(connection, overdue)
                    connection.executemany("DELETE FROM blocks WHERE id = ?", rows)

                self._store.write(leave)
                del self._overdue[: len(overdue)]
                for run in idle:
                    del self._blocks[run]
            self._store.close()

    # ── blocks ───────────────────────────────────────────────────────────────

    def _grow_block(self, run: str, worsts: Sequence[float], cap: float, month_cap: float | None) -> _Block:
        """Raise this process's block until all calls fit, or at least the first. Raises `OverBudget`."""
        if not self._swept:
            self.release_ended_processes()
        if self._store.leased:
            self._renew_blocks({run})
        block = self._blocks.get(run)
        free = max(block.free, 0.0) if block else 0.0  # negative: a call cost more than its worst case
        worst, wanted = worsts[0], sum(worsts) - free
        needed = max(worst - free, 0.0)

        def grow(connection: SqlConnection) -> tuple[int, float]:
            room = _remaining_usd(connection, run, cap, month_cap)
            if room + _EPSILON < wanted and self._release_dead(connection):
                room = _remaining_usd(connection, run, cap, month_cap)
            if room + _EPSILON < needed:
                raise OverBudget(_format_refusal(run, worst, room + free, cap, month_cap))
            grant = min(max(wanted, min(_BLOCK_CALLS * worst, cap * _BLOCK_SHARE)), max(room, needed))
            if block is None:
                number = connection.execute(_ADD_BLOCK, (run, *self._store.holder(), grant)).fetchone()[0]
                return int(number), grant
            connection.execute("UPDATE blocks SET usd = usd + ? WHERE id = ?", (grant, block.id))
            return block.id, grant

        number, grant = self._store.write(grow)
        if block is None:
            block = self._blocks[run] = _Block(number, cap, month_cap)
        block.free, block.cap, block.month_cap = free + grant, cap, month_cap
        return block

    def _return_reserved(
        self,
        done: Sequence[tuple[Reservation, float]],
        before: Callable[[SqlConnection], object] | None = None,
        *,
        otherwise: Sequence[tuple[str, Reservation, float]],
    ) -> None:
        """Remove finished calls (reservation, USD spent) from this process's blocks, in one transaction with
        `before`.

        If the store fails, the calls have ended all the same. The next transaction then begins with the statements of
        `otherwise`, each for the sent call of a reservation, for which this USD counts as spent; until then the
        reservations stay on disk.
        """
        with self._lock:
            self._forget_after_fork()
            after, overdue = self._blocks_without(done), list(self._overdue)
            idle = [(block.id,) for block in after.values() if block.in_flight == 0]
            busy = [(block.usd, block.id) for block in after.values() if block.in_flight != 0]

            def give_back(connection: SqlConnection) -> None:
                self._execute_overdue(connection, overdue)
                if before is not None:
                    before(connection)
                connection.executemany("DELETE FROM sent WHERE id = ?", [(r.sent,) for r, _ in done if r.sent])
                # An idle process keeps nothing from the others.
                connection.executemany("DELETE FROM blocks WHERE id = ?", idle)
                connection.executemany("UPDATE blocks SET usd = ? WHERE id = ?", busy)

            try:
                self._store.write(give_back)
            except BaseException:
                self._overdue += [(statement, held.sent) for statement, held, _ in otherwise if held.sent]
                self._blocks |= self._blocks_without([(held, usd) for _, held, usd in otherwise])
                raise
            del self._overdue[: len(overdue)]
            for run, block in after.items():
                if block.in_flight == 0:
                    del self._blocks[run]
                else:
                    self._blocks[run] = block

    def _blocks_without(self, done: Iterable[tuple[Reservation, float]]) -> dict[str, _Block]:
        """Return this process's blocks, of the runs concerned, without finished calls (reservation, USD spent)."""
        after: dict[str, _Block] = {}
        for reservation, usd in done:
            if (known := after.get(reservation.run, self._blocks.get(reservation.run))) is not None:
                after[reservation.run] = replace(
                    known,
                    reserved=max(known.reserved - reservation.usd, 0.0),
                    free=known.free + reservation.usd - usd,
                    in_flight=known.in_flight - 1,
                )
        return after

    def _execute_overdue(self, connection: SqlConnection, overdue: Iterable[tuple[str, int]]) -> None:
        """Execute the statements that the store did not take before."""
        for statement, sent in overdue:
            connection.execute(statement, (sent, *self._store.holder()))

    def _renew_blocks(self, runs: Iterable[str]) -> None:
        """Reserve again what this process holds and others released because they took it for ended. Raises
        `OverBudget`."""
        for run in runs:
            if (block := self._blocks.get(run)) is None:
                continue

            def renew(connection: SqlConnection, run: str = run, block: _Block = block) -> tuple[int, float]:
                if connection.execute("SELECT id FROM blocks WHERE id = ?", (block.id,)).fetchone() is not None:
                    return block.id, block.free
                room = _remaining_usd(connection, run, block.cap, block.month_cap)
                if room + _EPSILON < block.reserved:
                    raise OverBudget(_format_refusal(run, block.reserved, room, block.cap, block.month_cap))
                usd = min(block.usd, room)
                number = connection.execute(_ADD_BLOCK, (run, *self._store.holder(), usd)).fetchone()[0]
                return int(number), usd - block.reserved

            number, free = self._store.write(renew)
            self._blocks[run] = replace(block, id=number, free=free)

    def _release_dead(self, connection: SqlConnection) -> bool:
        """Drop the blocks of ended processes, and count their sent calls as lost; return whether there were any."""
        dead = self._store.find_ended(connection, _list_holders(connection))
        connection.executemany("UPDATE sent SET lost = 1 WHERE lost = 0 AND pid = ? AND started = ?", dead)
        connection.executemany("DELETE FROM blocks WHERE pid = ? AND started = ?", dead)
        return bool(dead)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._blocks, self._overdue, self._pid = {}, [], os.getpid()


def _list_holders(connection: SqlConnection) -> list[ProcessId]:
    """Return the processes that hold blocks or have calls in flight."""
    query = "SELECT pid, started FROM blocks UNION SELECT pid, started FROM sent WHERE lost = 0"
    return [ProcessId(*owner) for owner in connection.execute(query).fetchall()]


def _sum_calls(calls: Iterable[tuple[str, str, str, int, int, float]]) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Return the number, tokens and USD of calls of the same run, purpose and worker together."""
    sums: dict[tuple[str, ...], list[float]] = {}
    for run, purpose, worker, *amounts in calls:
        so_far = sums.setdefault((run, purpose, worker), [0, 0, 0, 0.0])
        for index, amount in enumerate((1, *amounts)):
            so_far[index] += amount
    return iter(sums.items())


def _remaining_usd(connection: SqlConnection, run: str, cap: float, month_cap: float | None) -> float:
    """Return the USD left under the caps after every process's blocks."""

    def total(query: str, *values: str) -> float:
        return float(connection.execute(f"SELECT coalesce(sum(usd), 0.0) FROM {query}", values).fetchone()[0])

    room = cap - total("spent WHERE run = ?", run) - total("blocks WHERE run = ?", run)
    if month_cap is not None:
        month_room = month_cap - total("spent WHERE month = ?", current_month()) - total("blocks")
        room = min(room, month_room)
    return room


def _format_refusal(run: str, worst: float, room: float, cap: float, month_cap: float | None) -> str:
    month = f", month {month_cap:g}" if month_cap is not None else ""
    return (
        f"run {run!r}: {CAP_MESSAGE} {worst:.6f} USD and {max(room, 0.0):.6f} USD is left "
        f"(cap {cap:g}{month}). Raise budget.run_usd or budget.month_usd in the recipe, or lower a "
        "worker's max_tokens; what is done stays cached"
    )


def open_ledger(path: Path) -> Ledger:
    """Open the checkout's ledger: the server in PODIUM_LEDGER_URL, or the file.

    Raises `ConfigError` if the variable holds no Postgres URL, or its client is not installed.
    """
    url = os.environ.get(LEDGER_URL)
    if not url:
        return Ledger(path)
    from ops.spending.postgres_ledger import SharedLedgerStore

    return Ledger(path, SharedLedgerStore(url))
