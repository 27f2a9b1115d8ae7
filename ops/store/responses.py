"""Workers' paid responses in the store, with a cache in memory in front of it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache

from ops.core.request_batches import Batcher
from ops.core.response import Response
from ops.store.entries import CACHE_URL, Backend, Claim, Entry, Kind, decode_response
from ops.store.sqlite_file import SqliteBackend

log = logging.getLogger(__name__)

_FIRST_POLL_S, _LONGEST_POLL_S = 0.01, 0.25


class _ClaimAttempt(NamedTuple):
    """The result of an attempt to claim a key, and whether its response is stored by now."""

    claim: Claim | None
    stored: bool


ENTRY_OVERHEAD_CHARS = 500
"""The size of a response in memory besides its text, in characters: its key, numbers and objects."""


class ResponseCache:
    """Responses by key in a folder's SQLite file or in another `Backend`, which many processes may share.

    `memory_chars` limits the size, in characters, of the responses that are kept in memory. A damaged response is
    deleted and counts as missing. Every method may raise `DataError` if the file cannot be used now, `sqlite3.Error` or
    `OSError` for a failing disk, and `CacheUnavailable` if the server does not answer.
    """

    def __init__(self, place: Path | Backend, *, memory_chars: int = 64_000_000) -> None:
        self.backend: Backend = SqliteBackend(place) if isinstance(place, Path) else place
        self._memory: LRUCache[str, Response] = LRUCache(memory_chars, getsizeof=_count_chars)
        self._lock = threading.Lock()
        self._claims = Batcher(self._try_claim, undo=_release_claims)

    def get(self, key: str) -> Response | None:
        """Return the response with this key, with `cached=True`; None if it is not stored."""
        if (remembered := self._get_from_memory(key)) is not None:
            return remembered
        entry = self.backend.select(Kind.RESPONSE, [key]).get(key)
        if entry is None:
            return None
        response = decode_response(key, entry)
        if response is None:
            log.warning("the stored response %s is damaged: dropped, the worker is asked again", key)
            self.delete([key])
            return None
        self._remember(key, response)
        return response

    def put_many(self, entries: Sequence[tuple[str, str, Response]]) -> None:
        """Store successful responses, given as (key, material, response), in one transaction.

        When this returns, all of them are on disk; if it raises, none is stored. `material` is the text of
        `cache_material`, which is stored so that a user can inspect the request.
        """
        if not entries:
            return
        now = time.time()
        self.backend.insert([Entry.from_response(*entry, now) for entry in entries])
        for key, _, response in entries:
            self._remember(key, replace(response, cached=True))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete responses. Other running processes may keep them in memory until they end."""
        self.backend.delete(Kind.RESPONSE, keys)
        with self._lock:
            for key in keys:
                self._memory.pop(key, None)

    def find_existing(self, keys: Sequence[str]) -> set[str]:
        """Return those keys whose responses are stored, so that a cost estimate can leave them out. Damage is not
        checked."""
        return self.backend.find_existing(Kind.RESPONSE, keys)

    async def claim(self, key: str) -> Response | Claim:
        """Wait for the right to make the call of this key, or for its response from the process that has this right.

        Of all processes that share the store, only one makes the call. The claim must be released when the response is
        stored or the call has failed; then a waiting process takes over. A waiting process also takes over if the
        holder has ended and no answer to the holder's call can arrive any more.
        """
        pause = _FIRST_POLL_S
        while True:
            attempt = await self._claims.submit(key)
            if attempt.stored and (response := self.get(key)) is not None:
                _release_claims(attempt)
                return response
            if attempt.claim is not None:
                return attempt.claim
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """Record that the calls of these keys are sent now. Returns the keys whose claims this process still holds.

        `seconds` maps each key to the time, in seconds, within which its answer may arrive. If this process dies, no
        other process repeats the call before that time has passed. A call whose claim is lost must not be made: this
        process was suspended or disconnected for too long, and another one makes the call.
        """
        return self.backend.mark_sent(seconds)

    def __len__(self) -> int:
        """Return the number of stored responses."""
        return self.backend.count(Kind.RESPONSE)

    def close(self) -> None:
        """Close the file or the connections. The next use opens them again."""
        self.backend.close()

    def _try_claim(self, keys: Sequence[str]) -> list[_ClaimAttempt]:
        claims = self.backend.claim(Kind.RESPONSE, keys)
        # This is read after the claims were taken, so that responses stored since the caller's look-up are found.
        stored = self.backend.find_existing(Kind.RESPONSE, keys)
        return [_ClaimAttempt(claim, key in stored) for key, claim in zip(keys, claims, strict=True)]

    def _get_from_memory(self, key: str) -> Response | None:
        with self._lock:
            return self._memory.get(key)

    def _remember(self, key: str, response: Response) -> None:
        if _count_chars(response) <= self._memory.maxsize:
            with self._lock:
                self._memory[key] = response


def _count_chars(response: Response) -> int:
    return len(response.text) + ENTRY_OVERHEAD_CHARS


def _release_claims(attempt: _ClaimAttempt) -> None:
    if attempt.claim is not None:
        attempt.claim.release()


def open_cache(folder: Path) -> ResponseCache:
    """Return the responses of the workspace's store (`open_backend`)."""
    return ResponseCache(open_backend(folder))


def open_backend(folder: Path) -> Backend:
    """Return the workspace's store: the server in `$PODIUM_CACHE_URL`, or the SQLite file in `folder`.

    Raises `ConfigError` if the variable is not a valid address, or if the client's package is not installed.
    """
    url = os.environ.get(CACHE_URL)
    if not url:
        return SqliteBackend(folder)
    if url.startswith("postgres"):
        from ops.store.postgres import PostgresBackend

        return PostgresBackend(url)
    from ops.store.redis_server import RedisBackend

    return RedisBackend(url)
