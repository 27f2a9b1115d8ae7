"""A circuit breaker.

It is our own: asyncio libraries for it either know one event loop only or wrap whole functions, and a call here may be
cancelled during its probe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """Circuit breaker. Closed: calls pass. Open, after `failures` in a row: no call passes for `seconds_to_wait`
    seconds, then one probe.

    A response to the probe closes the circuit, a failure opens it again; if the probe is cancelled, the next call is
    the probe. Safe under threads.
    """

    def __init__(self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._rest_s, self._clock = failures, rest_s, clock
        self._row = 0
        self._open_until = 0.0
        self._probe: object | None = None
        self._lock = threading.Lock()
        self.reason = ""
        """The last failure, in words."""

    def seconds_to_wait(self, call: object) -> float:
        """Return the seconds that `call` must wait; 0: it may be made. After the pause, only one call passes at
        first."""
        if self._row < self._limit:  # without the lock: the usual case, and one call too many is harmless
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
        """The worker responded, with an answer or with a refusal."""
        if self._row:
            with self._lock:
                self._row, self._probe = 0, None

    def record_failure(self, call: object, reason: str) -> None:
        """Record that `call` got no response after all retries."""
        with self._lock:
            self._row += 1
            self.reason = reason
            if self._row >= self._limit:
                self._open_until = self._clock() + self._rest_s
            if self._probe is call:
                self._probe = None

    def record_no_result(self, call: object) -> None:
        """Record that `call` ended without information on the worker: it was cancelled, or not sent."""
        if self._probe is call:
            with self._lock:
                self._probe = None
