"""A circuit breaker for the calls to one worker.

It is written here because asyncio libraries for circuit breakers either support one event loop only or wrap whole
functions, and because a call may be cancelled here while it is the probe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """A circuit breaker, which stops calls to a worker that fails repeatedly.

    While the circuit is closed, all calls are made. After `failures` consecutive failures it is open: no call is made
    for `rest_s` seconds, and then a single one, the probe. A response to the probe closes the circuit, and a failure
    opens it again. If the probe is cancelled, the next call becomes the probe. It may be used by several threads.
    `clock` returns the time in seconds.
    """

    def __init__(self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._rest_s, self._clock = failures, rest_s, clock
        self._row = 0
        self._open_until = 0.0
        self._probe: object | None = None
        self._lock = threading.Lock()
        self.reason = ""
        """The reason of the last failure, in words."""

    def seconds_to_wait(self, call: object) -> float:
        """Return the seconds that `call` must wait, or 0 if it may be made now (possibly as the probe)."""
        if self._row < self._limit:  # this usual case takes no lock, because one call too many is harmless
            return 0.0
        with self._lock:
            if self._row < self._limit or self._probe is call:
                return 0.0
            left = self._open_until - self._clock()
            if left > 0:
                return left
            if self._probe is None:
                self._probe = call
                return 0.0
            return self._rest_s

    def is_probe(self, call: object) -> bool:
        """Return whether `call` is the probe."""
        return self._probe is call

    def record_success(self) -> None:
        """Record that the worker responded, with an answer or with a refusal."""
        if self._row:
            with self._lock:
                self._row, self._probe = 0, None

    def record_failure(self, call: object, reason: str) -> None:
        """Record that `call` got no response after all retries, for the given reason."""
        with self._lock:
            self._row += 1
            self.reason = reason
            if self._row >= self._limit:
                self._open_until = self._clock() + self._rest_s
            if self._probe is call:
                self._probe = None

    def record_no_result(self, call: object) -> None:
        """Record that `call` ended without information about the worker, because it was cancelled or not sent."""
        if self._probe is call:
            with self._lock:
                self._probe = None
