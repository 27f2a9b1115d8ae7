"""One worker's limits: calls in flight, requests and tokens per minute, and pauses that its provider requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ops.config import Worker
from ops.workers.fleet import FleetLimits
from ops.workers.machine import MachineLimits, Times

RECOVERY_ROUNDS = 32
"""Rounds of calls without a 429 that restore the full concurrency from one call at a time."""
_OUTCOMES = 16
"""Number of recent outcomes considered, or as many as calls may be in flight."""
_CROWDED_SHARE = 1 / 4
LONGEST_PAUSE_S = 30.0
_CHARS_PER_TOKEN = 4
_MEMORY = 0.1
"""Weight of the newest answer's length in the estimate of the next one's."""


class RatePacer:
    """Spends `per_minute` units evenly: each start is delayed by the units spent before it.

    The caller stores the time of the next start. A wrong cost is corrected afterwards (`seconds`), so that the sum over
    any minute stays within `per_minute`, except for the last call's own cost.
    """

    def __init__(self, per_minute: float) -> None:
        self._interval = 60.0 / per_minute

    def take(self, next_start: float, cost: float, now: float) -> tuple[float, float]:
        """Spend units; return the time at which the call may start, and the earliest start of the next one."""
        start = max(next_start, now)
        return start, start + self.seconds(cost)

    def seconds(self, units: float) -> float:
        """Return the seconds by which these units delay the next start."""
        return units * self._interval


class Place(NamedTuple):
    """What a call holds from `enter` to `leave`: its tokens of the pace, and its slot of the machine."""

    tokens: float
    slot: int | None


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    granted: asyncio.Future[None]


class Limits:
    """Starts calls to one worker; shared by all event loops and threads of a client.

    With `machine` (or a fleet of machines), all processes share the slots, the pace and the pauses that the provider
    requests; each process measures by itself how far 429s reduce the calls in flight. If 429s are a quarter of the last
    outcomes, the calls in flight are halved once for all calls sent before; every success restores a little (additive
    increase, multiplicative decrease). A single 429 halves nothing, because shared endpoints send some at any rate.
    Retry-After pauses all calls, and so do repeated halvings, for longer each time, because then even one call at a
    time is too much.
    """

    def __init__(
        self,
        worker: Worker,
        clock: Callable[[], float] = time.monotonic,
        machine: MachineLimits | FleetLimits | None = None,
    ) -> None:
        self._ceiling, self._allowed = worker.concurrency, float(worker.concurrency)
        self._requests = RatePacer(worker.requests_per_minute) if worker.requests_per_minute else None
        self._tokens = RatePacer(worker.tokens_per_minute) if worker.tokens_per_minute else None
        self._expected, self._answers = float(worker.max_tokens), 0
        self._clock, self._machine, self._own_times = clock, machine, Times()
        self._now = machine.now if machine else clock
        self._busy = 0
        self._waiting: deque[_Waiter] = deque()
        self._halved_at = 0.0
        self._row = 0
        self._outcomes: deque[bool] = deque(maxlen=min(_OUTCOMES, worker.concurrency))
        self._lock = threading.Lock()

    @property
    def allowed(self) -> int:
        """Return the number of calls that may be in flight now."""
        return int(self._allowed)

    async def enter(self, prompt_chars: int, *, again: bool = False) -> Place:
        """Wait for a free place and for the pace. `leave` must follow.

        First come, first served, except that a repeated call (`again`) goes first: at the end of a long queue its next
        pause would begin only after all others. A cancelled wait changes nothing.
        """
        with self._lock:
            free = self._busy < int(self._allowed) and not self._waiting
            if free:
                self._busy += 1
            else:
                loop = asyncio.get_running_loop()
                waiter = _Waiter(loop, loop.create_future())
                if again:
                    self._waiting.appendleft(waiter)
                else:
                    self._waiting.append(waiter)
        if not free:
            await self._granted(waiter)
        try:
            slot = await self._machine.take(self._ceiling) if self._machine else None
            try:
                return Place(await self._paced(prompt_chars), slot)
            except BaseException:
                self._give(slot)
                raise
        except BaseException:
            self._free_place()
            raise

    def leave(self, place: Place, used: int) -> None:
        """Record the end of the call and the tokens that it used."""
        if self._tokens is not None:
            self._correct(used - place.tokens)
        self._give(place.slot)
        self._free_place()

    def answered(self, completion_tokens: int) -> None:
        """Record a successful call: slightly more may be in flight, and its length updates the estimate."""
        with self._lock:
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

    def crowded(self, sent_at: float, retry_after_s: float | None, pause_s: float) -> None:
        """Record a 429 for a call sent at `sent_at` (by the clock); `pause_s` is the first pause if the provider
        requests none."""
        with self._lock:
            now = self._clock()
            if sent_at >= self._halved_at:
                self._outcomes.append(True)
                if sum(self._outcomes) >= _CROWDED_SHARE * (self._outcomes.maxlen or 1):
                    self._halved_at = now
                    self._allowed = max(1.0, self._allowed / 2)
                    self._outcomes.clear()
                    self._row += 1
            wish = retry_after_s
            if wish is None and self._row > 1:
                wish = min(pause_s * 2.0 ** (self._row - 2), LONGEST_PAUSE_S)
        if wish:
            with self._times() as times:
                times.not_before = max(times.not_before, self._now() + wish)

    # ── places ───────────────────────────────────────────────────────────────

    async def _granted(self, waiter: _Waiter) -> None:
        try:
            await waiter.granted
        except BaseException:
            with self._lock:
                waits = waiter in self._waiting
                if waits:
                    self._waiting.remove(waiter)
            if not waits:  # granted after its caller had gone
                self._free_place()
            raise

    def _free_place(self) -> None:
        with self._lock:
            self._busy -= 1
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        woken = []
        with self._lock:
            while self._waiting and self._busy < int(self._allowed):
                self._busy += 1
                woken.append(self._waiting.popleft())
        here = asyncio.get_running_loop()
        for waiter in woken:
            if waiter.loop is here:
                _grant(waiter.granted)
                continue
            try:
                waiter.loop.call_soon_threadsafe(_grant, waiter.granted)
            except RuntimeError:  # that loop was closed meanwhile, with its waiter
                self._free_place()

    # ── pace ─────────────────────────────────────────────────────────────────

    async def _paced(self, prompt_chars: int) -> float:
        """Wait until the pace and the provider allow a request; return the tokens taken."""
        while True:
            while (wish := self._not_before() - self._now()) > 0:  # noqa: ASYNC110  (it may be put off again)
                await asyncio.sleep(wish)
            if self._requests is None and self._tokens is None:
                return 0.0
            cost, start = self._take(prompt_chars)
            try:
                if (rest := start - self._now()) > 0:
                    await asyncio.sleep(rest)
            except BaseException:
                self._correct(-cost, requests=-1)
                raise
            if self._not_before() <= self._now():
                return cost
            self._correct(-cost, requests=-1)

    def _take(self, prompt_chars: int) -> tuple[float, float]:
        """Spend one request and the expected tokens; return those tokens and the time at which the call may start."""
        cost, start = 0.0, self._now()
        with self._times() as times:
            if self._tokens is not None:
                cost = prompt_chars / _CHARS_PER_TOKEN + self._expected
                start, times.tokens = self._tokens.take(times.tokens, cost, start)
            if self._requests is not None:
                start, times.requests = self._requests.take(times.requests, 1, start)
        return cost, start

    def _correct(self, tokens: float, *, requests: int = 0) -> None:
        """Book tokens and requests beyond the estimate (negative: fewer)."""
        with self._times() as times:
            if self._tokens is not None:
                times.tokens += self._tokens.seconds(tokens)
            if self._requests is not None:
                times.requests += self._requests.seconds(requests)

    @contextmanager
    def _times(self) -> Iterator[Times]:
        if self._machine is not None:
            with self._machine.times() as times:
                yield times
        else:
            with self._lock:
                yield self._own_times

    def _not_before(self) -> float:
        return (self._machine.known_times() if self._machine else self._own_times).not_before

    def _give(self, slot: int | None) -> None:
        if self._machine is not None and slot is not None:
            self._machine.give(slot)


def _grant(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)
