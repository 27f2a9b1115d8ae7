"""Admission control: how many requests are processed at the same time, how many wait, and which are refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from ops.serving.openai.errors import make_not_ready_error, make_overload_error

_DURATION_WINDOW = 50
"""The mean duration is taken over this many recent requests."""


class AdmissionControl:
    """Admits `max_active` requests at a time, and lets `max_waiting` more wait in the order of their arrival."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        self._places, self._max_active, self._max_waiting = asyncio.Semaphore(max_active), max_active, max_waiting
        self._mean_s, self._ended = 1.0, 0
        self.in_flight = 0
        self.waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.closing = False
        """Whether the server is ending: no further request is admitted."""

    @contextlib.asynccontextmanager
    async def admit(self) -> AsyncIterator[float]:
        """Wait until the request is admitted, and keep its place during the block. Yields the seconds of waiting.
        Raises `ApiError` if the queue is full or the server is ending."""
        if self.closing:
            raise make_not_ready_error("the server is about to end", 5)
        if self._places.locked() and self.waiting >= self._max_waiting:
            raise make_overload_error(self.waiting, self.retry_after_s)
        came = time.monotonic()
        self.waiting += 1
        self._idle.clear()
        try:
            await self._places.acquire()
            self.in_flight += 1
        finally:
            self.waiting -= 1
            self._update_idle()
        began = time.monotonic()
        try:
            yield began - came
        finally:
            self.in_flight -= 1
            self._ended += 1
            self._mean_s += (time.monotonic() - began - self._mean_s) / min(self._ended, _DURATION_WINDOW)
            self._places.release()
            self._update_idle()

    @property
    def retry_after_s(self) -> float:
        """Return in how many seconds the waiting requests will have begun, as far as can be expected."""
        return self._mean_s * (self.waiting + 1) / self._max_active

    async def drain(self, seconds: float) -> bool:
        """Admit no further request, and wait until all have ended. Return whether they did within that many seconds."""
        self.closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return self._idle.is_set()

    def _update_idle(self) -> None:
        if not self.in_flight and not self.waiting:
            self._idle.set()
