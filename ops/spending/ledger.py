"""The budget ledger: each amount is reserved before it can be spent, and recorded afterwards.

At every commit, over all processes, settled + lost + reserved amounts are at most the cap.

A process reserves blocks of several calls, so that most calls need only two small transactions, one before sending and
one for settling. A settled call is on disk when `settle` returns. If a process is killed, its reservations of unsent
calls are released. Its sent calls are *lost*: their cost is unknown and the provider may bill them, so their highest
possible cost counts as spent until the same question is answered again and its cost is known.
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
"""Number of calls at their highest possible cost that a block has room for, if the cap is far away."""
_BLOCK_SHARE = 1 / 64
"""A block is at most this share of the cap, so that a process does not reserve the budget of the others."""
_MAX_TOKENS = 2**40
"""The largest number of tokens in a bill, so that sums of bills fit into 64-bit integers."""
_EPSILON = 1e-9
"""A tolerance in USD, so that a rounding error does not refuse a call."""


CAP_MESSAGE = "the next call may cost"
"""A part of every message about a cap, by which it is recognised, because the errors of a training process reach the
run only as text."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation of one call. It must be returned once, with `Ledger.settle`, `Ledger.release` or
    `Ledger.mark_lost`."""

    run: str
    usd: float
    sent: int = 0
    """The id of the call among the sent calls (`Ledger.mark_sent`); 0 before it is sent, and for calls that are not
    billed."""


class OutgoingCall(NamedTuple):
    """A call that is about to be sent: its reservation, purpose and worker, and the `key` of its question in the
    store."""

    reservation: Reservation
    purpose: str
    worker: str
    key: str


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one call in USD, its usage and its reservation. `key` is the key of its question in the store.

    Raises `ValueError` for a cost that is negative or not finite, and for a number of tokens that is negative or too
    large.
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
    """This process's part of a run's cap in USD: `free` is unused, and `reserved` is the highest possible cost of its
    calls in flight."""

    id: int
    cap: float
    month_cap: float | None
    free: float = 0.0
    reserved: float = 0.0
    in_flight: int = 0

    @property
    def usd(self) -> float:
        """The USD that the block takes from the cap."""
        return max(self.free, 0.0) + self.reserved


class Ledger(LedgerReader):
    """Reservations and their settlement, in a SQLite file or another `LedgerStore` that many processes share."""

    def __init__(self, path: Path, store: LedgerStore | None = None) -> None:
        super().__init__(path, store)
        self._blocks: dict[str, _Block] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._swept = False
        self._overdue: list[tuple[str, int]] = []
        """Statements that a store could not execute because it failed, each with the id of a sent call
        (`_return_reserved`)."""

    def reserve(self, run: str, worst_usd: float, cap_usd: float, *, month_cap_usd: float | None = None) -> Reservation:
        """Reserve the highest possible cost of a call, in USD, before it is sent.

        Raises `OverBudget` if this amount, together with spent and reserved amounts, would exceed the run's cap or the
        cap of the calendar month (UTC, over all runs).
        """
        return self.reserve_many(run, (worst_usd,), cap_usd, month_cap_usd=month_cap_usd)[0]

    def reserve_many(
        self, run: str, worst_usd: Sequence[float], cap_usd: float, *, month_cap_usd: float | None = None
    ) -> list[Reservation]:
        """Reserve several calls in at most one transaction. Returns the reservations of those that fit, beginning with
        the first one.

        Raises `OverBudget` if the first one does not fit.
        """
        with self._lock:
            self._forget_after_fork()
            block = self._blocks.get(run)
            if block is None or block.free + _EPSILON < sum(worst_usd):
                block = self._grow_block(run, worst_usd, cap_usd, month_cap_usd)
            granted = []
            for usd in worst_usd:
                if block.free + _EPSILON < usd:
                    break
                block.free -= usd
                block.reserved += usd
                block.in_flight += 1
                granted.append(Reservation(run, usd))
        return granted

    def mark_sent(self, *calls: OutgoingCall) -> list[Reservation]:
        """Record on disk that calls are sent now, and return their reservations in order.

        If this process dies, they count as spent. This is only for calls that a provider serves and bills.
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
        """Undo `mark_sent` for a call that was not sent. Its reservation remains."""
        self._store.write(lambda connection: connection.execute("DELETE FROM sent WHERE id = ?", (reservation.sent,)))

    def settle(self, *bills: Bill) -> None:
        """Record the real cost of calls in one transaction, which is on disk when this returns.

        Lost calls of the same questions are counted at the same cost from now on. If this raises, the calls that were
        sent count as lost.
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
        """Release the reservations of calls that have cost nothing."""
        otherwise = [(_RECALL, reservation, 0.0) for reservation in reservations]
        self._return_reserved([(reservation, 0.0) for reservation in reservations], otherwise=otherwise)

    def mark_lost(self, reservation: Reservation) -> None:
        """Count a sent call as spent at its highest possible cost, because no answer arrived and the provider may bill
        it."""
        self._return_reserved(
            [(replace(reservation, sent=0), reservation.usd)],
            lambda connection: connection.execute("UPDATE sent SET lost = 1 WHERE id = ?", (reservation.sent,)),
            otherwise=[(_LOSE, reservation, reservation.usd)],
        )

    def release_ended_processes(self) -> None:
        """Release the reservations of ended processes, and count their sent calls as lost."""
        if self._store.read(_list_holders):
            self._store.write(self._release_dead)
        self._swept = True

    def lost_keys_without_cost(self) -> list[str]:
        """Return the keys of the lost calls whose question has no known cost yet."""
        self.release_ended_processes()
        query = "SELECT DISTINCT key FROM sent WHERE lost = 1 AND measured = 0"
        return [key for (key,) in self._store.read(lambda connection: connection.execute(query).fetchall())]

    def book_lost_calls(self, usd_by_key: Mapping[str, float]) -> None:
        """Count lost calls at the cost in USD of the same question's answer, which is given by key."""
        rows = [(usd, key) for key, usd in usd_by_key.items()]
        self._store.write(lambda connection: connection.executemany(_MEASURE, rows))

    def count_in_flight(self, run: str) -> int:
        """Return the number of this process's open reservations for the run."""
        with self._lock:
            block = self._blocks.get(run)
            return block.in_flight if block and self._pid == os.getpid() else 0

    def open_reservations(self) -> dict[str, float]:
        """Return by run the USD that running processes have reserved, for calls in flight and a few later ones."""
        self.release_ended_processes()
        query = "SELECT run, sum(usd) FROM blocks GROUP BY run ORDER BY run"
        return dict(self._store.read(lambda connection: connection.execute(query).fetchall()))

    def close(self) -> None:
        """Release this process's unused blocks and close the store. The next use opens it again."""
        with self._lock:
            self._forget_after_fork()
            idle = {run: block.id for run, block in self._blocks.items() if block.in_flight == 0}
            if idle or self._overdue:
                rows, overdue = [(number,) for number in idle.values()], list(self._overdue)

                def release_blocks(connection: SqlConnection) -> None:
                    self._execute_overdue(connection, overdue)
                    connection.executemany("DELETE FROM blocks WHERE id = ?", rows)

                self._store.write(release_blocks)
                del self._overdue[: len(overdue)]
                for run in idle:
                    del self._blocks[run]
            self._store.close()

    # ── blocks ───────────────────────────────────────────────────────────────

    def _grow_block(self, run: str, worsts: Sequence[float], cap: float, month_cap: float | None) -> _Block:
        """Increase this process's block until all calls fit, or at least the first one. Raises `OverBudget` if it
        cannot."""
        if not self._swept:
            self.release_ended_processes()
        if self._store.leased:
            self._renew_blocks({run})
        block = self._blocks.get(run)
        free = max(block.free, 0.0) if block else 0.0  # `block.free` is negative if a call cost more than reserved
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
        finished: Sequence[tuple[Reservation, float]],
        before: Callable[[SqlConnection], object] | None = None,
        *,
        otherwise: Sequence[tuple[str, Reservation, float]],
    ) -> None:
        """Remove finished calls, given as (reservation, USD spent), from this process's blocks, in a transaction that
        first runs `before`.

        If the store fails, the calls have ended nevertheless. Each item of `otherwise` says which statement is then
        executed at the beginning of the next transaction for the sent call of a reservation, and which amount in USD
        counts as spent for it. Until then the reservations remain on disk.
        """
        with self._lock:
            self._forget_after_fork()
            after, overdue = self._blocks_without(finished), list(self._overdue)
            idle = [(block.id,) for block in after.values() if block.in_flight == 0]
            busy = [(block.usd, block.id) for block in after.values() if block.in_flight != 0]

            def return_to_store(connection: SqlConnection) -> None:
                self._execute_overdue(connection, overdue)
                if before is not None:
                    before(connection)
                connection.executemany("DELETE FROM sent WHERE id = ?", [(r.sent,) for r, _ in finished if r.sent])
                # An idle process deletes its blocks, so that the others can use the budget.
                connection.executemany("DELETE FROM blocks WHERE id = ?", idle)
                connection.executemany("UPDATE blocks SET usd = ? WHERE id = ?", busy)

            try:
                self._store.write(return_to_store)
            except BaseException:
                self._overdue += [
                    (statement, reservation.sent) for statement, reservation, _ in otherwise if reservation.sent
                ]
                self._blocks |= self._blocks_without([(reservation, usd) for _, reservation, usd in otherwise])
                raise
            del self._overdue[: len(overdue)]
            for run, block in after.items():
                if block.in_flight == 0:
                    del self._blocks[run]
                else:
                    self._blocks[run] = block

    def _blocks_without(self, finished: Iterable[tuple[Reservation, float]]) -> dict[str, _Block]:
        """Return this process's blocks for the runs concerned without the finished calls, given as (reservation, USD
        spent)."""
        after: dict[str, _Block] = {}
        for reservation, usd in finished:
            if (block := after.get(reservation.run, self._blocks.get(reservation.run))) is not None:
                after[reservation.run] = replace(
                    block,
                    reserved=max(block.reserved - reservation.usd, 0.0),
                    free=block.free + reservation.usd - usd,
                    in_flight=block.in_flight - 1,
                )
        return after

    def _execute_overdue(self, connection: SqlConnection, overdue: Iterable[tuple[str, int]]) -> None:
        """Execute the statements that the store could not execute before."""
        for statement, sent in overdue:
            connection.execute(statement, (sent, *self._store.holder()))

    def _renew_blocks(self, runs: Iterable[str]) -> None:
        """Reserve again the blocks that other processes released because they took this one for ended. Raises
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
        """Delete the blocks of ended processes and count their sent calls as lost. Returns whether there were any."""
        ended = self._store.find_ended(connection, _list_holders(connection))
        connection.executemany("UPDATE sent SET lost = 1 WHERE lost = 0 AND pid = ? AND started = ?", ended)
        connection.executemany("DELETE FROM blocks WHERE pid = ? AND started = ?", ended)
        return bool(ended)

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._blocks, self._overdue, self._pid = {}, [], os.getpid()


def _list_holders(connection: SqlConnection) -> list[ProcessId]:
    """Return the processes that hold blocks or have calls in flight."""
    query = "SELECT pid, started FROM blocks UNION SELECT pid, started FROM sent WHERE lost = 0"
    return [ProcessId(*owner) for owner in connection.execute(query).fetchall()]


def _sum_calls(
    calls: Iterable[tuple[str, str, str, float, float, float]],
) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Return the number of calls, tokens and USD for each (run, purpose, worker)."""
    sums: dict[tuple[str, ...], list[float]] = {}
    for run, purpose, worker, *amounts in calls:
        so_far = sums.setdefault((run, purpose, worker), [0, 0, 0, 0.0])
        for index, amount in enumerate((1, *amounts)):
            so_far[index] += amount
    return iter(sums.items())


def _remaining_usd(connection: SqlConnection, run: str, cap: float, month_cap: float | None) -> float:
    """Return the USD that remain under the caps after spending and the blocks of all processes."""

    def total(query: str, *values: str) -> float:
        return float(connection.execute(f"SELECT coalesce(sum(usd), 0.0) FROM {query}", values).fetchone()[0])

    remaining = cap - total("spent WHERE run = ?", run) - total("blocks WHERE run = ?", run)
    if month_cap is not None:
        remaining_in_month = month_cap - total("spent WHERE month = ?", current_month()) - total("blocks")
        remaining = min(remaining, remaining_in_month)
    return remaining


def _format_refusal(run: str, worst: float, room: float, cap: float, month_cap: float | None) -> str:
    month = f", month {month_cap:g}" if month_cap is not None else ""
    return (
        f"run {run!r}: {CAP_MESSAGE} {worst:.6f} USD and {max(room, 0.0):.6f} USD is left "
        f"(cap {cap:g}{month}). Raise budget.run_usd or budget.month_usd in the recipe, or lower a "
        "worker's max_tokens; what is done stays cached"
    )


def open_ledger(path: Path) -> Ledger:
    """Return the workspace's ledger: the server in `$PODIUM_LEDGER_URL`, or the SQLite file at `path`.

    Raises `ConfigError` if the variable is not a Postgres URL, or if the client's package is not installed.
    """
    url = os.environ.get(LEDGER_URL)
    if not url:
        return Ledger(path)
    from ops.spending.postgres_ledger import SharedLedgerStore

    return Ledger(path, SharedLedgerStore(url))
