"""The queue of one worker, which decides which call is sent next, and when.

It applies the worker's limits (calls in flight, requests and tokens per minute), which other processes and machines may
share, the pauses that the provider requests, and the worker's circuit breaker.
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
"""After this number of rounds of calls without status 429, the concurrency has recovered from one call to its
maximum."""
_RECENT_OUTCOMES = 16
"""The number of recent outcomes that are considered; at most as many as calls may be in flight."""
_RATE_LIMIT_SHARE = 1 / 4
MAX_PAUSE_S = 30.0
_CHARS_PER_TOKEN = 4
_MEMORY = 0.1
"""The weight of the latest answer's length in the estimate of the next one's (exponential moving average)."""


class RatePacer:
    """Distributes `per_minute` units evenly over time: each start is delayed by the units that were spent before it.

    The caller stores the time of the next start. If an estimated cost was wrong, it is corrected afterwards
    (`delay_s`), so that any minute has at most `per_minute` units, apart from those of its last call.
    """

    def __init__(self, per_minute: float) -> None:
        self._interval = 60.0 / per_minute

    def take(self, next_start: float, cost: float, now: float) -> tuple[float, float]:
        """Spend units. Returns the time at which the call may start, and the earliest start of the next one, in
        seconds."""
        start = max(next_start, now)
        return start, start + self.delay_s(cost)

    def delay_s(self, units: float) -> float:
        """Return the seconds by which these units delay the next start."""
        return units * self._interval


class QueuePlace(NamedTuple):
    """What a call holds between `enter` and `leave`."""

    tokens: float
    """The tokens that the call has taken from the rate."""
    slot: int | None
    """The slot that it has taken from the limits shared with other processes; None if no limits are shared."""
    began: float
    """The time at which it was allowed to be sent, by the queue's clock."""


class _WaitingCall:
    """A call that waits for a place. A cancelled call remains in the heap until its turn comes."""

    def __init__(self, turn: Turn, is_retry: bool, arrival: int) -> None:
        self.turn, self.is_retry, self.arrival = turn, is_retry, arrival
        self.loop = asyncio.get_running_loop()
        self.granted = self.loop.create_future()
        self.has_place = self.is_gone = False


class WorkerQueue:
    """The queue of calls to one worker, over all event loops and threads of a client.

    Among the waiting calls, one that is repeated after a failure goes first, because at the end of a long queue its
    next pause would begin only after all others. Then follows the call with the most remaining work (`Turn`): a batch
    ends with its slowest workflow, and first come, first served would delay long workflows behind short ones. Calls
    with equal remaining work keep their order of arrival.

    With `shared`, all processes of a machine or a team share the slots, the rates and the pauses that the provider
    requests. Each process decides by itself how far responses with status 429 reduce its calls in flight, by additive
    increase and multiplicative decrease: if they are a quarter of the recent outcomes, the number is halved once for
    all calls sent before, and every success increases it a little. A single 429 has no effect, because shared endpoints
    send some at any rate. A Retry-After pauses all calls. Repeated halvings pause them too, for exponentially growing
    times, because even one call at a time is then too much.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        shared: MachineLimits | FleetLimits | None = None,
        durations: CallDurations | None = None,
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
        self._durations = durations or CallDurations()
        self._edition = self._durations.edition
        self._busy = self._arrivals = self._queued = 0
        self._heap: list[tuple[bool, float, int, _WaitingCall]] = []
        self._halved_at = 0.0
        self._row = 0
        self._outcomes: deque[bool] = deque(maxlen=min(_RECENT_OUTCOMES, worker.concurrency))
        self._lock = threading.Lock()

    @property
    def max_in_flight(self) -> int:
        """The number of calls that may be in flight now."""
        return int(self._allowed)

    @property
    def waiting_calls(self) -> int:
        """The number of calls that wait for a place."""
        return self._queued

    async def enter(
        self, call: object, prompt_chars: int, turn: Turn = INDEPENDENT_CALL, *, is_retry: bool = False
    ) -> QueuePlace:
        """Wait until `call` may be sent, and return its place. `leave` must be called afterwards.

        `prompt_chars` is the length of the prompt, from which its tokens are estimated. `is_retry` says that the call
        is repeated after a failure. Cancelling the wait has no effect on the limits. Raises `WorkerUnreachable` while
        the circuit breaker is open.
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
        if rest_s := self.breaker.seconds_to_wait(call):  # checked only now, because the wait may have been long
            self.leave(place, 0)
            worker = self.worker
            raise WorkerUnreachable(
                f"worker {worker.name!r} ({worker.model}) is paused: {worker.breaker_failures} calls or more "
                f"in a row had no response, at last {self.breaker.reason}; it is tried again in {rest_s:.0f} s"
            )
        return place

    def leave(self, place: QueuePlace, used: int) -> None:
        """Record the end of a call and the number of tokens that it has used."""
        if self._tokens is not None:
            self._correct_spending(used - place.tokens)
        self._release_slot(place.slot)
        self._free_place()

    def record_answer(self, place: QueuePlace, completion_tokens: int) -> None:
        """Record a successful call. This increases the number of calls that may be in flight, and updates the estimates
        of a call's duration and length."""
        with self._lock:
            self._durations.record(self.worker, self._clock() - place.began)
            self._row = 0
            self._outcomes.append(False)
            self._answers += 1
            self._expected += max(_MEMORY, 1 / self._answers) * (completion_tokens - self._expected)
            is_reduced = self._allowed < self._ceiling
            if is_reduced:
                step = max(1.0, self._ceiling / RECOVERY_ROUNDS)
                self._allowed = min(self._allowed + step / self._allowed, float(self._ceiling))
        if is_reduced:
            self._wake()

    def record_rate_limit(self, sent_at: float, retry_after_s: float | None, pause_s: float) -> None:
        """Record a response with status 429 for a call that was sent at `sent_at` (by the clock).

        `retry_after_s` is the pause in seconds that the provider requests. If it requests none, `pause_s` is the first
        pause after repeated halvings.
        """
        with self._lock:
            now = self._clock()
            if sent_at >= self._halved_at:
                self._outcomes.append(True)
                if sum(self._outcomes) >= _RATE_LIMIT_SHARE * (self._outcomes.maxlen or 1):
                    self._halved_at = now
                    self._allowed = max(1.0, self._allowed / 2)
                    self._outcomes.clear()
                    self._row += 1
            requested_pause_s = retry_after_s
            if requested_pause_s is None and self._row > 1:
                requested_pause_s = min(pause_s * 2.0 ** (self._row - 2), MAX_PAUSE_S)
        if requested_pause_s:
            with self._locked_times() as times:
                times.not_before = max(times.not_before, self._now() + requested_pause_s)

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
        """Return the entry of a waiting call in the heap, which determines its order."""
        remaining_s = waiting.turn.remaining_s
        left_s = self._durations.expected_s(self.worker) if remaining_s is None else remaining_s(self._durations)
        # Among repeated calls, the latest one goes first.
        arrival = -waiting.arrival if waiting.is_retry else waiting.arrival
        return not waiting.is_retry, 0.0 if waiting.is_retry else -left_s, arrival, waiting

    async def _wait_until_granted(self, waiting: _WaitingCall) -> None:
        try:
            await waiting.granted
        except BaseException:
            with self._lock:
                waiting.is_gone = True
                self._queued -= not waiting.has_place
            if waiting.has_place:  # the place was granted at the moment of the cancellation
                self._free_place()
            raise

    def _free_place(self) -> None:
        with self._lock:
            self._busy -= 1
        if self._queued:
            self._wake()

    def _wake(self) -> None:
        """Give the free places to the waiting calls that go first."""
        granted_calls = []
        with self._lock:
            if self._edition != self._durations.edition:
                self._edition = self._durations.edition
                self._heap = [self._entry(waiting) for *_, waiting in self._heap if not waiting.is_gone]
                heapq.heapify(self._heap)
            while self._heap and self._busy < int(self._allowed):
                waiting = heapq.heappop(self._heap)[-1]
                if not waiting.is_gone:
                    self._busy += 1
                    self._queued -= 1
                    waiting.has_place = True
                    granted_calls.append(waiting)
        running_loop = asyncio.get_running_loop()
        for waiting in granted_calls:
            if waiting.loop is running_loop:
                _grant(waiting.granted)
                continue
            try:
                waiting.loop.call_soon_threadsafe(_grant, waiting.granted)
            except RuntimeError:  # the loop of that call was closed meanwhile
                self._free_place()

    # ── pace ─────────────────────────────────────────────────────────────────

    async def _wait_for_pace(self, prompt_chars: int) -> float:
        """Wait until the rate and the provider allow a request, and return the tokens taken from the rate."""
        while True:
            while (pause_s := self._not_before() - self._now()) > 0:  # noqa: ASYNC110  (the pause may be prolonged)
                await asyncio.sleep(pause_s)
            if self._requests is None and self._tokens is None:
                return 0.0
            cost, start = self._spend(prompt_chars)
            try:
                if (remaining_s := start - self._now()) > 0:
                    await asyncio.sleep(remaining_s)
            except BaseException:
                self._correct_spending(-cost, requests=-1)
                raise
            if self._not_before() <= self._now():
                return cost
            self._correct_spending(-cost, requests=-1)

    def _spend(self, prompt_chars: int) -> tuple[float, float]:
        """Spend one request and the expected tokens. Returns these tokens and the time at which the call may start."""
        cost, start = 0.0, self._now()
        with self._locked_times() as times:
            if self._tokens is not None:
                cost = prompt_chars / _CHARS_PER_TOKEN + self._expected
                start, times.tokens = self._tokens.take(times.tokens, cost, start)
            if self._requests is not None:
                start, times.requests = self._requests.take(times.requests, 1, start)
        return cost, start

    def _correct_spending(self, tokens: float, *, requests: int = 0) -> None:
        """Spend tokens and requests beyond the estimate; negative numbers give them back."""
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
