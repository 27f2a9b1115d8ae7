"""One queue per worker for a batch of workflows: the call whose workflow has the most remaining work goes first.

A batch ends with its slowest workflow; first come, first served would delay long chains behind short ones.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ops.config import Worker
from ops.workers.scheduling import waiting

_UNKNOWN_S = 1.0
"""Assumed seconds of a call to a worker without a declared latency or an earlier call."""
_MEMORY = 20
"""Approximate number of recent calls in a worker's mean."""
_SURPRISE = 1.5
"""Factor of change of the mean after which the waiting calls are sorted again."""

Remaining = Callable[[], float]
"""Expected seconds from a call's start to its workflow's answer, as far as is known now."""


class _Waiting(NamedTuple):
    """One call that waits for a slot, as a heap orders it: most remaining work first, then by arrival."""

    less_s: float
    arrival: int
    turn: asyncio.Future[None]
    remaining: Remaining


@dataclass
class _Queue:
    """One worker's free slots, waiting calls, and durations of calls."""

    free: int
    mean_s: float
    declared: bool
    calls: int = 0
    ordered_by_s: float = 0.0
    """The mean at the last sorting of the waiting calls."""
    edition: int = 0
    """The version of the scheduler's order that `waiting` has."""
    waiting: list[_Waiting] = field(default_factory=list)


class Scheduler:
    """Gives out the workers' slots (`Worker.concurrency`) within one event loop.

    Share one among all workflows that run at the same time. After a call it keeps only the worker's mean
    duration, so one scheduler can serve the whole process.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._arrivals = 0
        self._edition = 0

    def expected_s(self, worker: Worker) -> float:
        """Return the seconds of a call to the worker: declared, or the mean so far."""
        return self._queue(worker).mean_s

    def waiting(self, worker: Worker) -> int:
        """Return the number of calls that wait for a slot of the worker."""
        return sum(not call.turn.done() for call in self._queue(worker).waiting)

    @asynccontextmanager
    async def slot(self, worker: Worker, remaining: Remaining) -> AsyncIterator[None]:
        """Hold one of the worker's slots; the waiting call with the most `remaining` work is first, then the earliest.

        The wait is reported (`ops.workers.scheduling`).
        """
        queue, loop = self._queue(worker), asyncio.get_running_loop()
        await self._acquire(queue, remaining)
        began = loop.time()
        try:
            yield
        finally:
            self._release(queue)
        self._learn(queue, loop.time() - began)

    def _queue(self, worker: Worker) -> _Queue:
        queue = self._queues.get(worker.name)
        if queue is None:
            mean_s = _UNKNOWN_S if worker.latency_s is None else worker.latency_s
            queue = _Queue(worker.concurrency, mean_s, worker.latency_s is not None, ordered_by_s=mean_s)
            self._queues[worker.name] = queue
        return queue

    def _learn(self, queue: _Queue, taken_s: float) -> None:
        if queue.declared:
            return
        queue.calls += 1
        queue.mean_s += (taken_s - queue.mean_s) / min(queue.calls, _MEMORY)
        low, high = sorted((queue.mean_s, queue.ordered_by_s))
        if high > _SURPRISE * low:
            queue.ordered_by_s = queue.mean_s
            self._edition += 1  # every queue's order may depend on it

    async def _acquire(self, queue: _Queue, remaining: Remaining) -> None:
        if queue.free > 0:
            queue.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(queue.waiting, _Waiting(-remaining(), self._arrivals, turn, remaining))
        try:
            with waiting():
                await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was granted at the same moment
                self._release(queue)
            raise

    def _release(self, queue: _Queue) -> None:
        if queue.edition != self._edition:
            queue.edition = self._edition
            queue.waiting = [call._replace(less_s=-call.remaining()) for call in queue.waiting if not call.turn.done()]
            heapq.heapify(queue.waiting)
        while queue.waiting:
            turn = heapq.heappop(queue.waiting).turn
            if not turn.done():
                turn.set_result(None)  # the slot is passed on directly, so that no other call can take it
                return
        queue.free += 1
