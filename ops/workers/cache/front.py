"""`ResponseCache`: a memory in front of a backend, and what is done about damage."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ops.errors import CacheUnavailable
from ops.workers.cache.backend import CACHE_URL, Backend, Claim
from ops.workers.cache.local import LocalBackend
from ops.workers.cache.rows import Row, decode, encode
from ops.workers.types import Response

log = logging.getLogger(__name__)

_FIRST_POLL_S, _LONGEST_POLL_S = 0.01, 0.25


class ResponseCache:
    """Responses by key, in a folder's SQLite file or in another `Backend`; many processes share it.

    `memory_chars` bounds the texts kept in memory in front of it (characters). A row
    that cannot be read is dropped and counts as a miss. Any method may raise
    `sqlite3.Error` or `OSError` (no disk), `CacheUnavailable` (no server), and
    `DataError` where a newer checkout wrote the file.
    """

    def __init__(self, place: Path | Backend, *, memory_chars: int = 64_000_000) -> None:
        self.backend: Backend = LocalBackend(place) if isinstance(place, Path) else place
        self._memory: OrderedDict[str, Response] = OrderedDict()
        self._chars = 0
        self._bound = memory_chars
        self._lock = threading.Lock()
        self._wanted: dict[asyncio.AbstractEventLoop, list[tuple[str, asyncio.Future[Claim | None]]]] = {}

    def get(self, key: str) -> Response | None:
        """The response of that key with `cached=True`, or None."""
        if (kept := self._recall(key)) is not None:
            return kept
        row = self.backend.select(key)
        if row is None:
            return None
        response = decode(*row)
        if response is None:
            log.warning("cache row %s is damaged: dropped, the worker is asked again", key)
            self.delete([key])
            return None
        self._remember(key, response)
        return response

    def put(self, key: str, material: str, response: Response) -> None:
        """Store a complete success; it outlives the process once this returns.

        `material` is `cache_material`'s text, kept so that a person can see what was asked.
        """
        self.put_many([(key, material, response)])

    def put_many(self, entries: Sequence[tuple[str, str, Response]]) -> None:
        """`put` for several (key, material, response), in one transaction: all of them or none."""
        if not entries:
            return
        now = time.time()
        self.backend.insert([Row(key, *encode(response), material, now) for key, material, response in entries])
        for key, _, response in entries:
            self._remember(key, replace(response, cached=True))

    def delete(self, keys: Sequence[str]) -> None:
        """Drop entries; other processes may remember them until they end."""
        self.backend.delete(keys)
        with self._lock:
            for key in keys:
                if (old := self._memory.pop(key, None)) is not None:
                    self._chars -= len(old.text)

    def holds(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are stored: what an estimate leaves out. Damage is not looked for."""
        return self.backend.holds(keys)

    async def claim(self, key: str) -> Response | Claim:
        """Wait for the right to make the call of this key, or for its response from the process that has it.

        Of all processes that share the cache one makes a call at a time. A claim must be
        released when the response is stored, or when the call has failed: then one of those
        who wait takes over. So it does when the holder dies, but not before the answer to what
        the holder had sent can no longer come.
        """
        pause = _FIRST_POLL_S
        while (claim := await self._take(key)) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)
            if (response := self.get(key)) is not None:
                return response
        # Stored between the caller's look-up and now, by another process or by a thread of this one?
        if (response := self.get(key)) is not None:
            claim.release()
            return response
        return claim

    def __len__(self) -> int:
        """How many responses are stored."""
        return self.backend.count()

    def close(self) -> None:
        """Close the file or the connections; the next use opens them again."""
        self.backend.close()

    async def _take(self, key: str) -> Claim | None:
        """One attempt; those of one turn of the event loop share a transaction."""
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[Claim | None] = loop.create_future()
        if (wanted := self._wanted.get(loop)) is None:
            self._wanted[loop] = [(key, taken)]
            loop.call_soon(self._take_wanted, loop)
        else:
            wanted.append((key, taken))
        try:
            return await taken
        except asyncio.CancelledError:
            if not taken.cancelled() and taken.exception() is None and (claim := taken.result()) is not None:
                claim.release()  # it was taken, and nobody is there to use it
            raise

    def _take_wanted(self, loop: asyncio.AbstractEventLoop) -> None:
        wanted = [(key, taken) for key, taken in self._wanted.pop(loop) if not taken.cancelled()]
        try:
            claims = self.backend.claim(*(key for key, _ in wanted))
        except (sqlite3.Error, OSError, CacheUnavailable) as error:
            for _, taken in wanted:
                taken.set_exception(error)
            return
        for (_, taken), claim in zip(wanted, claims, strict=True):
            taken.set_result(claim)

    def _recall(self, key: str) -> Response | None:
        with self._lock:
            if (kept := self._memory.get(key)) is not None:
                self._memory.move_to_end(key)
            return kept

    def _remember(self, key: str, response: Response) -> None:
        with self._lock:
            if (old := self._memory.pop(key, None)) is not None:
                self._chars -= len(old.text)
            self._memory[key] = response
            self._chars += len(response.text)
            while self._chars > self._bound and len(self._memory) > 1:
                self._chars -= len(self._memory.popitem(last=False)[1].text)


def open_cache(folder: Path, *, memory_chars: int = 64_000_000) -> ResponseCache:
    """The cache that this checkout is set up for: the server that PODIUM_CACHE_URL names, or the folder's file.

    Raises `ConfigError` when the variable holds no Redis URL, or the client for it is not installed.
    """
    url = os.environ.get(CACHE_URL)
    if not url:
        return ResponseCache(folder, memory_chars=memory_chars)
    from ops.workers.cache.shared import SharedBackend

    return ResponseCache(SharedBackend(url), memory_chars=memory_chars)
