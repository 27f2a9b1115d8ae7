"""The queue of one worker: which call goes next, and when it may be sent.

It knows the worker's limits (calls in flight, requests and tokens per minute), whether other processes and machines
share them, the pauses that the provider requests, and the worker's circuit breaker.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ops.config import Worker
from ops.core.errors import WorkerUnreachable
from ops.workers.breaker import CircuitBreaker
from ops.workers.machine_limits import MachineLimits, RequestTimes
from ops.workers.redis_limits import FleetLimits
from ops.workers.scheduling import INDEPENDENT_CALL, CallDurations, Turn

RECOVERY_ROUNDS = 32
"""Rounds of calls without a 429 that restore the full concurrency from one call at a time."""
_RECENT_OUTCOMES = 16
"""Number of recent outcomes considered, or as many as calls may be in flight."""
_RATE_LIMIT_SHARE = 1 / 4
MAX_PAUSE_S = 30.0
_CHARS_PER_TOKEN = 4
_MEMORY = 0.1
"""Weight of the newest answer's length in the estimate of the next one's."""


class RatePacer:
    """Spends `per_minute` units evenly: each start is delayed by the units spent before it.

    The caller stores the time of the next start. A wrong cost is corrected afterwards (`delay_s`), so that the sum over
    any minute stays within `per_minute`, except for the last call's own cost.
    """

    def __init__(self, per_minute: float) -> None:
        self._interval = 60.0 / per_minute

    def take(self, next_start: float, cost: float, now: float) -> tuple[float, float]:
        """Spend units; return the time at which the call may start, and the earliest start of the next one."""
        start = max(next_start, now)
        return start, start + self.delay_s(cost)

    def delay_s(self, units: float) -> float:
        """Return the seconds by which these units delay the next start."""
        return units * self._interval


class QueuePlace(NamedTuple):
    """What a call holds from `enter` to `leave`."""

    tokens: float
    """The tokens that the call took from the rate."""
    slot: int | None
    """The slot that it took from the limits shared with other processes."""
    began: float
    """When it was allowed to be sent, by the queue's clock."""


class _WaitingCall:
    """A call that waits for a place; a cancelled one stays in the heap until its turn comes."""

    def __init__(self, turn: Turn, is_retry: bool, arrival: int) -> None:
        self.turn, self.is_retry, self.arrival = turn, is_retry, arrival
        self.loop = asyncio.get_running_loop()
        self.granted = self.loop.create_future()
        self.has_place = self.is_gone = False


class WorkerQueue:
    """The calls to one worker, in all event loops and threads of a client.

    Of the calls that wait, one that is repeated after a failure goes first, because at the end of a long queue its next
    pause would begin only after all others. Then goes the call with the most remaining work (`Turn`), because a batch
    ends with its slowest workflow, and first come, first served would delay long chains behind short ones. Equals keep
    the order of their arrival.

    With `shared`, all processes of a machine or a fleet share the slots, the rates and the pauses that the provider
    requests; each process measures by itself how far 429s reduce the calls in flight. If 429s are a quarter of the last
    outcomes, the calls in flight are halved once for all calls sent before; every success restores a little (additive
    increase, multiplicative decrease). A single 429 halves nothing, because shared endpoints send some at any rate.
    Retry-After pauses all calls, and so do repeated halvings, for longer each time, because then even one call at a
    time is too much.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        shared: MachineLimits | FleetLimits | None = None,
        speeds: CallDurations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker
        self.breaker = CircuitBreaker(worker.breaker_failures, worker.breaker_rest_s, clock)
        self._ceiling, self._allowed = worker.concurrency, float(worker.concurrency)
        self._requests = RatePacer(worker.requests_per_minute) if worker.requests_per_minute else None
        self._tokens = RatePacer(worker.tokens_per_minute) if worker.tokens_per_minute else None
        self._expected, self._answers = float(worker.max_tokens), 0
        self._clock, self._shared, self._own_times = clock, shared, RequestTimes()
        self._now = shared.now if shared else clock
        self._speeds = speeds or CallDurations()
        self._edition = self._speeds.edition
        self._busy = self._arrivals = self._queued = 0
        self._heap: list[tuple[bool, float, int, _WaitingCall]] = []
        self._halved_at = 0.0
        self._row = 0
        self._outcomes: deque[bool] = deque(maxlen=min(_RECENT_OUTCOMES, worker.concurrency))
        self._lock = threading.Lock()

    @property
    def max_in_flight(self) -> int:
        """Return the number of calls that may be in flight now."""
        return int(self._allowed)

    @property
    def waiting_calls(self) -> int:
        """Return the number of calls that wait for a place."""
        return self._queued

    async def enter(
        self, call: object, prompt_chars: int, turn: Turn = INDEPENDENT_CALL, *, is_retry: bool = False
    ) -> QueuePlace:
        """Wait until `call` may be sent. `leave` must follow; a cancelled wait changes nothing.

        `is_retry`: the call is repeated after a failure. Raises `WorkerUnreachable` while the circuit is open.
        """
        with turn.waiting():
            if (waiting := self._join(turn, is_retry)) is not None:
                await self._wait_until_granted(waiting)
            slot = None
            try:
                if self._shared is not None:
                    slot = await self._shared.take_slot(self._ceiling)
                place = QueuePlace(await self._wait_for_pace(prompt_chars), slot, self._clock())
            except BaseException:
                self._release_slot(slot)
                self._free_place()
                raise
        if rest_s := self.breaker.seconds_to_wait(call):  # asked here because the wait may have been long
            self.leave(place, 0)
            worker = self.worker
            raise WorkerUnreachable(
                f"worker {worker.name!r} ({worker.model}) is paused: {worker.breaker_failures} calls or more "
                f"in a row had no response, at last {self.breaker.reason}; it is tried again in {rest_s:.0f} s"
            )
        return place

    def leave(self, place: QueuePlace, used: int) -> None:
        """Record the end of the call and the tokens that it used."""
        if self._tokens is not None:
            self._correct_spending(used - place.tokens)
        self._release_slot(place.slot)
        self._free_place()

    def record_answer(self, place: QueuePlace, completion_tokens: int) -> None:
        """Record a successful call: slightly more may be in flight, and its duration and length update the
        estimates."""
        with self._lock:
            self._speeds.record(self.worker, self._clock() - place.began)
            self._row = 0
            self._outcomes.append(False)
            self._answers += 1
            self._expected += max(_MEMORY, 1 / self._answers) * (completion_tokens - self._expected)
            narrowed = self._allowed < self._ceiling
            if narrowed:
                step = max(1.0, self._ceiling / RECOVERY_ROUNDS)
                self._allowed = min(self._allowed + step / self._allowed, float(self._ceiling))
        if narrowed:
            self._wake()

    def record_rate_limit(self, sent_at: float, retry_after_s: float | None, pause_s: float) -> None:
        """Record a 429 for a call sent at `sent_at` (by the clock); `pause_s` is the first pause if the provider
        requests none."""
        with self._lock:
            now = self._clock()
            if sent_at >= self._halved_at:
                self._outcomes.append(True)
                if sum(self._outcomes) >= _RATE_LIMIT_SHARE * (self._outcomes.maxlen or 1):
                    self._halved_at = now
                    self._allowed = max(1.0, self._allowed / 2)
                    self._outcomes.clear()
                    self._row += 1
            wish = retry_after_s
            if wish is None and self._row > 1:
                wish = min(pause_s * 2.0 ** (self._row - 2), MAX_PAUSE_S)
        if wish:
            with self._locked_times() as times:
                times.not_before = max(times.not_before, self._now() + wish)

    # ── order ────────────────────────────────────────────────────────────────

    def _join(self, turn: Turn, is_retry: bool) -> _WaitingCall | None:
        """Take a free place and return None, or join the waiting calls."""
        with self._lock:
            if self._busy < int(self._allowed) and not self._queued:
                self._busy += 1
                return None
            self._arrivals += 1
            self._queued += 1
            waiting = _WaitingCall(turn, is_retry, self._arrivals)
            heapq.heappush(self._heap, self._entry(waiting))
        return waiting

    def _entry(self, waiting: _WaitingCall) -> tuple[bool, float, int, _WaitingCall]:
        """Return the call as the heap orders it."""
        remaining_s = waiting.turn.remaining_s
        left_s = self._speeds.expected_s(self.worker) if remaining_s is None else remaining_s(self._speeds)
        # The newest repeated call goes first of all.
        arrival = -waiting.arrival if waiting.is_retry else waiting.arrival
        return not waiting.is_retry, 0.0 if waiting.is_retry else -left_s, arrival, waiting

    async def _wait_until_granted(self, waiting: _WaitingCall) -> None:
        try:
            await waiting.granted
        except BaseException:
            with self._lock:
                waiting.is_gone = True
                self._queued -= not waiting.has_place
            if waiting.has_place:  # granted at the moment of the cancellation
                self._free_place()
            raise

    def _free_place(self) -> None:
        with self._lock:
            self._busy -= 1
        if self._queued:
            self._wake()

    def _wake(self) -> None:
        """Give free places to the calls that go first."""
        woken = []
        with self._lock:
            if self._edition != self._speeds.edition:
                self._edition = self._speeds.edition
                self._heap = [self._entry(waiting) for *_, waiting in self._heap if not waiting.is_gone]
                heapq.heapify(self._heap)
            while self._heap and self._busy < int(self._allowed):
                waiting = heapq.heappop(self._heap)[-1]
                if not waiting.is_gone:
                    self._busy += 1
                    self._queued -= 1
                    waiting.has_place = True
                    woken.append(waiting)
        here = asyncio.get_running_loop()
        for waiting in woken:
            if waiting.loop is here:
                _grant(waiting.granted)
                continue
            try:
                waiting.loop.call_soon_threadsafe(_grant, waiting.granted)
            except RuntimeError:  # that loop was closed meanwhile, with its call
                self._free_place()

    # ── pace ─────────────────────────────────────────────────────────────────

    async def _wait_for_pace(self, prompt_chars: int) -> float:
        """Wait until the pace and the provider allow a request; return the tokens taken."""
        while True:
            while (wish := self._not_before() - self._now()) > 0:  # noqa: ASYNC110  (it may be put off again)
                await asyncio.sleep(wish)
            if self._requests is None and self._tokens is None:
                return 0.0
            cost, start = self._spend(prompt_chars)
            try:
                if (rest := start - self._now()) > 0:
                    await asyncio.sleep(rest)
            except BaseException:
                self._correct_spending(-cost, requests=-1)
                raise
            if self._not_before() <= self._now():
                return cost
            self._correct_spending(-cost, requests=-1)

    def _spend(self, prompt_chars: int) -> tuple[float, float]:
        """Spend one request and the expected tokens; return those tokens and the time at which the call may start."""
        cost, start = 0.0, self._now()
        with self._locked_times() as times:
            if self._tokens is not None:
                cost = prompt_chars / _CHARS_PER_TOKEN + self._expected
                start, times.tokens = self._tokens.take(times.tokens, cost, start)
            if self._requests is not None:
                start, times.requests = self._requests.take(times.requests, 1, start)
        return cost, start

    def _correct_spending(self, tokens: float, *, requests: int = 0) -> None:
        """Book tokens and requests beyond the estimate (negative: fewer)."""
        with self._locked_times() as times:
            if self._tokens is not None:
                times.tokens += self._tokens.delay_s(tokens)
            if self._requests is not None:
                times.requests += self._requests.delay_s(requests)

    @contextmanager
    def _locked_times(self) -> Iterator[RequestTimes]:
        if self._shared is not None:
            with self._shared.locked_times() as times:
                yield times
        else:
            with self._lock:
                yield self._own_times

    def _not_before(self) -> float:
        return (self._shared.known_times() if self._shared else self._own_times).not_before

    def _release_slot(self, slot: int | None) -> None:
        if self._shared is not None and slot is not None:
            self._shared.release_slot(slot)


def _grant(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)
