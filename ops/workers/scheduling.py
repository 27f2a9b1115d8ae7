"""The interface of worker clients, and what a call tells the queue of its worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ops.config import Worker
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.response import Response

_UNKNOWN_S = 1.0
"""Assumed seconds of a call to a worker for which neither a latency nor an earlier call is known."""
_MEMORY = 20
"""The approximate number of recent calls that a worker's mean considers."""
_RESORT_FACTOR = 1.5
"""If a mean has changed by this factor, the waiting calls are sorted again."""


@dataclass
class _Mean:
    """A worker's mean duration of a call in seconds, the number of calls, and the mean by which waiting calls were last
    sorted."""

    seconds: float = _UNKNOWN_S
    calls: int = 0
    sorted_by: float = _UNKNOWN_S


class CallDurations:
    """The expected durations, in seconds, of calls to the workers of a client: declared in the pool, or the mean of
    recent calls."""

    def __init__(self) -> None:
        self._means: dict[str, _Mean] = {}
        self.edition = 0
        """Increases when a mean has changed so much that waiting calls of any worker may have to be sorted again."""

    def expected_s(self, worker: Worker) -> float:
        """Return the expected duration of a call to the worker, in seconds."""
        if worker.latency_s is not None:
            return worker.latency_s
        mean = self._means.get(worker.name)
        return _UNKNOWN_S if mean is None else mean.seconds

    def record(self, worker: Worker, taken_s: float) -> None:
        """Record the duration of a call, in seconds."""
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
    """What a call tells the queue of its worker: how much work depends on it, and who is informed while it waits."""

    remaining_s: Callable[[CallDurations], float] | None = None
    """Returns the expected seconds from the start of the call to the end of everything that needs its response. The
    call with the most remaining work goes first. None means that only the call itself counts."""
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Returns a context that the call enters while it only waits: for its place in the queue, for a rate, or for a
    pause that the provider requests. A deadline does not count this time."""


INDEPENDENT_CALL = Turn()
"""The turn of a call that no other work depends on."""


class Client(Protocol):
    """A client that returns workers' responses."""

    async def complete(
        self,
        worker: Worker,
        messages: Sequence[Message],
        *,
        sample: int | Sample = 0,
        turn: Turn = INDEPENDENT_CALL,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Response:
        """Return the worker's response to the messages.

        ``sample`` distinguishes several answers to the same messages; a number is a sample index. ``turn`` tells the
        worker's queue which work depends on the call. ``parameters`` belong to this request alone.

        Raises:
            WorkerUnreachable: there is no response, so the answer is unknown.
            WorkerRefused: the worker does not answer these messages.
            OverBudget: the call could exceed the cap on spending.
            ConfigError: the worker is configured wrongly; for example, its key is missing.
        """
        ...
