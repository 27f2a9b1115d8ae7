"""The response cache: what a worker once answered is never paid for again.

Content-addressed: the key is the SHA-256 of the canonical JSON of everything that
can change the response (worker identity, messages, sample index). Precaching,
training, evaluation, baselines and serving share one folder. What does not belong
here: deciding which responses are worth keeping (client) and what they cost (ledger).
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.workers.store import SqliteFile
from ops.workers.types import Message, Response

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    key TEXT PRIMARY KEY, response TEXT NOT NULL, checksum TEXT NOT NULL, material TEXT NOT NULL
);
"""
# ASCII output: a lone surrogate in some worker's text must not make the key or the row impossible.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Canonical JSON: one text for one value."""


def cache_material(identity: Mapping[str, Any], messages: Sequence[Message], sample: int) -> str:
    """The canonical JSON of everything that can change a response."""
    return canonical({"messages": list(messages), "sample": sample, "worker": identity})


def cache_key(identity: Mapping[str, Any], messages: Sequence[Message], sample: int) -> str:
    """SHA-256 (64 hex digits) of `cache_material`."""
    return hashlib.sha256(cache_material(identity, messages, sample).encode()).hexdigest()


class ResponseCache:
    """Responses by key, in one SQLite file that many processes share.

    `memory_chars` bounds the texts kept in memory in front of it (characters). A row
    that cannot be read is dropped and counts as a miss; a file that is no database any
    more is set aside, with a warning, and a new one begun.
    """

    def __init__(self, folder: Path, *, memory_chars: int = 64_000_000) -> None:
        self._file = SqliteFile(folder / "responses.sqlite", _SCHEMA)
        self._memory: OrderedDict[str, Response] = OrderedDict()
        self._chars = 0
        self._bound = memory_chars
        self._lock = threading.Lock()

    def get(self, key: str) -> Response | None:
        """The response of that key with `cached=True`, or None."""
        with self._lock:
            if (kept := self._memory.get(key)) is not None:
                self._memory.move_to_end(key)
                return kept
        row = self._select(key)
        if row is None:
            return None
        response = _decode(*row)
        if response is None:
            log.warning("cache row %s is damaged: dropped, the worker is asked again", key)
            with self._file.connection() as connection:
                connection.execute("DELETE FROM responses WHERE key = ?", (key,))
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
        rows = [(key, *_encode(response), material) for key, material, response in entries]
        try:
            self._insert(rows)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            self._insert(rows)
        for key, _, response in entries:
            self._remember(key, replace(response, cached=True))

    def __len__(self) -> int:
        """How many responses are stored."""
        with self._file.connection() as connection:
            return int(connection.execute("SELECT count(*) FROM responses").fetchone()[0])

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def _insert(self, rows: Sequence[tuple[str, str, str, str]]) -> None:
        with self._file.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", rows)

    def _select(self, key: str) -> tuple[str, str] | None:
        query = "SELECT response, checksum FROM responses WHERE key = ?"
        try:
            with self._file.connection() as connection:
                row: tuple[str, str] | None = connection.execute(query, (key,)).fetchone()
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            return ("", "")
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            return None
        return row

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        self._file.close()
        path = self._file.path
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        log.warning("%s cannot be read (%s): set aside as %s, a new cache begins", path, error, aside.name)
        for suffix in ("", "-wal", "-shm"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                source.replace(aside.with_name(aside.name + suffix))

    def _remember(self, key: str, response: Response) -> None:
        with self._lock:
            if (old := self._memory.pop(key, None)) is not None:
                self._chars -= len(old.text)
            self._memory[key] = response
            self._chars += len(response.text)
            while self._chars > self._bound and len(self._memory) > 1:
                self._chars -= len(self._memory.popitem(last=False)[1].text)


_STORED = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")


def _encode(response: Response) -> tuple[str, str]:
    body = canonical([getattr(response, name) for name in _STORED])
    return body, hashlib.blake2b(body.encode(), digest_size=8).hexdigest()


def _decode(body: object, checksum: object) -> Response | None:
    if not isinstance(body, str):
        return None
    if hashlib.blake2b(body.encode(errors="replace"), digest_size=8).hexdigest() != checksum:
        return None
    return Response(**dict(zip(_STORED, json.loads(body), strict=True)), cached=True)
