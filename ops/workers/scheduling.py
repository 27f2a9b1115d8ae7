"""The interface of worker clients, and what travels with a call to the queue of its worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ops.config import Worker
from ops.core.messages import Message, Sample
from ops.core.response import Response

_UNKNOWN_S = 1.0
"""Assumed seconds of a call to a worker without a declared latency or an earlier call."""
_MEMORY = 20
"""Approximate number of recent calls in a worker's mean."""
_RESORT_FACTOR = 1.5
"""Factor of change of a mean after which waiting calls are sorted again."""


@dataclass
class _Mean:
    """A worker's mean seconds of a call, the number of calls, and the mean by which waiting calls were sorted last."""

    seconds: float = _UNKNOWN_S
    calls: int = 0
    sorted_by: float = _UNKNOWN_S


class CallDurations:
    """The expected seconds of a call to each worker of a client: declared by the pool, or the mean of recent calls."""

    def __init__(self) -> None:
        self._means: dict[str, _Mean] = {}
        self.edition = 0
        """Increases when a mean has changed so much that waiting calls of any worker may have to be sorted again."""

    def expected_s(self, worker: Worker) -> float:
        """Return the expected seconds of a call to the worker."""
        if worker.latency_s is not None:
            return worker.latency_s
        mean = self._means.get(worker.name)
        return _UNKNOWN_S if mean is None else mean.seconds

    def record(self, worker: Worker, taken_s: float) -> None:
        """Record the seconds of a call."""
        if worker.latency_s is not None:
            return
        mean = self._means.setdefault(worker.name, _Mean())
        mean.calls += 1
        mean.seconds += (taken_s - mean.seconds) / min(mean.calls, _MEMORY)
        low, high = sorted((mean.seconds, mean.sorted_by))
        if high > _RESORT_FACTOR * low:
            mean.sorted_by = mean.seconds
            self.edition += 1


@dataclass(frozen=True)
class Turn:
    """What a call brings along for its worker's queue: how much work depends on it, and who is told that it waits."""

    remaining_s: Callable[[CallDurations], float] | None = None
    """Returns the expected seconds from the call's start until everything that needs its response has ended. The call
    with the most remaining work goes first. None: nothing but the call itself."""
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Returns the context that the call holds while it only waits for others: for its place in the queue, for a rate,
    for a pause that the provider requests. A deadline does not count this time."""


INDEPENDENT_CALL = Turn()
"""The turn of a call that no other work depends on."""


class Client(Protocol):
    """Anything that returns workers' responses."""

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, turn: Turn = INDEPENDENT_CALL
    ) -> Response:
        """Give the worker's response to the messages.

        ``sample`` identifies repeated answers to the same messages; a number is a sample index.

        Raises:
            WorkerUnreachable: there is no response; the answer is unknown.
            WorkerRefused: the worker will not answer these messages.
            OverBudget: the call could pass the cap on spending.
            ConfigError: the worker is configured wrongly, its key missing for one.
        """
        ...
