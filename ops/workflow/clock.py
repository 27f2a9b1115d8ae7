"""Measure the working time of a step without the time that it waits for others; the deadline counts only this time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Measures the work of one step in seconds.

    The clock begins with `before_s`, the work of the longest chain of steps before this one, and calls `on_limit` when
    it reaches `limit_s`. It runs from its construction until `stop`, except inside a block of `paused`.
    """

    def __init__(self, before_s: float, limit_s: float | None, on_limit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit_s, self._on_limit = limit_s, on_limit
        self._alarm: asyncio.TimerHandle | None = None
        self.work_s, self.waited_s = before_s, 0.0
        self._since = self._loop.time()
        self._set_alarm()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside the `with` block, and count the time there in `waited_s`."""
        self.stop()
        try:
            yield
        finally:
            now = self._loop.time()
            self.waited_s += now - self._since
            self._since = now
            self._set_alarm()

    def stop(self) -> None:
        """Stop the clock at the end of the step's work."""
        now = self._loop.time()
        self.work_s += now - self._since
        self._since = now
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        if self._limit_s is not None:
            self._alarm = self._loop.call_later(max(0.0, self._limit_s - self.work_s), self._on_limit)
