"""Admission control: how many requests are processed at the same time, how many wait, and which are refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from ops.serving.openai.errors import crowded, not_ready

_MEMORY = 50
"""The mean duration is taken over this many recent requests."""


class Admission:
    """Admits `at_once` requests at a time, and lets `waiting` more wait in the order of their arrival."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._places, self._at_once, self._most_waiting = asyncio.Semaphore(at_once), at_once, waiting
        self._mean_s, self._ended = 1.0, 0
        self.in_flight = 0
        self.waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.closing = False
        """Whether the server is ending: no further request is admitted."""

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """Wait until the request is admitted, and keep its place during the block. Yields the seconds of waiting.
        Raises `ApiError` if the queue is full or the server is ending."""
        if self.closing:
            raise not_ready("the server is about to end", 5)
        if self._places.locked() and self.waiting >= self._most_waiting:
            raise crowded(self.waiting, self.retry_after_s)
        came = time.monotonic()
        self.waiting += 1
        self._idle.clear()
        try:
            await self._places.acquire()
            self.in_flight += 1
        finally:
            self.waiting -= 1
            self._look()
        began = time.monotonic()
        try:
            yield began - came
        finally:
            self.in_flight -= 1
            self._ended += 1
            self._mean_s += (time.monotonic() - began - self._mean_s) / min(self._ended, _MEMORY)
            self._places.release()
            self._look()

    @property
    def retry_after_s(self) -> float:
        """Return in how many seconds the waiting requests will have begun, as far as can be expected."""
        return self._mean_s * (self.waiting + 1) / self._at_once

    async def empty(self, seconds: float) -> bool:
        """Admit no further request, and wait until all have ended. Return whether they did within that many seconds."""
        self.closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        return self._idle.is_set()

    def _look(self) -> None:
        if not self.in_flight and not self.waiting:
            self._idle.set()
