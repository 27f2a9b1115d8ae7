"""A circuit breaker per worker: a failing worker is not called for a while, and calls to it fail at once.

Our own forty lines rather than a library: the ones for asyncio either know one event
loop only or wrap whole functions, and a call here may be cancelled in the midst of its
probe. What does not belong here: what counts as a failure (client).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Breaker:
    """Closed: calls pass. Open, after `failures` in a row: none does for `rest_s` seconds. Then one may try.

    The one that tries closes the circuit by a response and opens it again by a failure; if it
    is cancelled, the next one tries. Safe under threads.
    """

    def __init__(self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._rest_s, self._clock = failures, rest_s, clock
        self._row = 0
        self._open_until = 0.0
        self._probe: object | None = None
        self._lock = threading.Lock()
        self.reason = ""
        """What the last failure was, in words."""

    def rest_s(self, call: object) -> float:
        """Seconds that `call` must wait; 0: it may be made. After the pause, only one call may be made at first."""
        if self._row < self._limit:  # without the lock: the usual case, and one call too many does no harm
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
        """Whether `call` is the one that tries whether the worker is back."""
        return self._probe is call

    def succeeded(self) -> None:
        """The worker responded, with an answer or with a refusal."""
        if self._row:
            with self._lock:
                self._row, self._probe = 0, None

    def failed(self, call: object, reason: str) -> None:
        """`call` got no response after all its retries."""
        with self._lock:
            self._row += 1
            self.reason = reason
            if self._row >= self._limit:
                self._open_until = self._clock() + self._rest_s
            if self._probe is call:
                self._probe = None

    def left(self, call: object) -> None:
        """`call` ended without saying anything of the worker: it was cancelled, or not sent."""
        if self._probe is call:
            with self._lock:
                self._probe = None
