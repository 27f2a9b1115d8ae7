"""The interface of a store for responses, their keys, and their format on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ops.core.response import Message, Response, Sample
from ops.core.usage import Usage

# ASCII output: a lone surrogate in some worker's text must not make the key or the row impossible.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Encode a value as canonical JSON: one text for one value."""

_BEFORE = '{"messages":'
_BETWEEN = '],"sample":'
"""A text in no JSON string (its quotes would be escaped); all values of a message are strings."""
OPENING = 96
"""Characters of a prompt's beginning that an index stores, by which related prompts are found."""


def cache_material(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the canonical JSON of everything that can change a response."""
    return canonical({"messages": list(messages), "sample": Sample.of(sample).as_json(), "worker": identity})


def cache_key(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the SHA-256 (64 hex digits) of `cache_material`."""
    return hashlib.sha256(cache_material(identity, messages, sample).encode()).hexdigest()


class Marks(NamedTuple):
    """The indexed parts of a material: the start of its prompt, and fingerprints of its two large parts."""

    opening: str
    messages: int
    worker: int
    identity: str
    """Canonical JSON of the worker's identity."""


def marks(material: str) -> Marks:
    """Return the marks of a material's text without parsing it; empty marks for other text."""
    cut = material.find(_BETWEEN)
    at = material.find(',"worker":', cut)
    if not material.startswith(_BEFORE) or cut < 0 or at < 0:
        return Marks("", 0, 0, "")
    messages, identity = material[len(_BEFORE) : cut + 1], material[at + len(',"worker":') : -1]
    return Marks(messages[:OPENING], fingerprint(messages), fingerprint(identity), identity)


def fingerprint(text: str) -> int:
    """Return 64 bits of a text's hash as SQLite's signed integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class CacheRow(NamedTuple):
    """One entry as stored: the bytes as read, so that damage can be detected."""

    key: str
    body: bytes
    checksum: str
    material: str
    created: float
    """Seconds since the epoch."""


class Head(NamedTuple):
    """The fields of an entry that a scan reads."""

    key: str
    worker: int
    created: float
    size: int
    """Characters of response and prompt."""


def encode(response: Response) -> tuple[bytes, str]:
    """Return canonical JSON of a response, and its checksum.

    The parts of its usage besides prompt and completion follow at the end, if it has any.
    """
    usage = response.usage
    values = [response.text, usage.prompt_tokens, usage.completion_tokens]
    values += [response.cost_usd, response.latency_s, response.finish_reason]
    body = canonical([*values, parts] if (parts := usage.special_parts()) else values).encode()
    return body, _checksum(body)


def decode(body: bytes, checksum: str) -> Response | None:
    """Return the response with `cached=True`; None if the row is damaged."""
    if _checksum(body) != checksum:
        return None
    text, prompt_tokens, completion_tokens, cost_usd, latency_s, reason, *parts = json.loads(body.decode("ascii"))
    usage = Usage(prompt_tokens, completion_tokens, **(parts[0] if parts else {}))
    return Response(text, usage, cost_usd, latency_s, reason, cached=True)


def is_sound(row: CacheRow) -> bool:
    """Return whether key, request and response of an entry are what was written."""
    return decode(row.body, row.checksum) is not None and row.key == hashlib.sha256(row.material.encode()).hexdigest()


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


CACHE_URL = "PODIUM_CACHE_URL"
"""The environment variable that names a shared cache, ``redis://HOST:PORT/DB``."""


class ClaimLost(Exception):
    """Another process holds the claim: this process was suspended, or disconnected, for too long."""


class CallClaim(Protocol):
    """The right to make one call. Give it up once through `release`, after any result of the call."""

    def release(self) -> None: ...


class Backend(Protocol):
    """Rows by key. Any method may raise the exceptions of `ResponseCache`."""

    name: str
    """Name for messages; contains no password."""

    def select(self, key: str) -> tuple[bytes, str] | None:
        """Return the stored body and checksum."""
        ...

    def insert(self, rows: Sequence[CacheRow]) -> None:
        """Store all entries or none; replaces existing ones."""
        ...

    def delete(self, keys: Sequence[str]) -> None: ...

    def holds(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have a row."""
        ...

    def count(self) -> int: ...

    def heads(self) -> Iterator[Head]:
        """Give every entry that exists during the whole iteration, in any order; other processes may write."""
        ...

    def rows(self) -> Iterator[CacheRow]:
        """Give the entries of `scan` in full."""
        ...

    def row(self, prefix: str) -> CacheRow | None:
        """Return the first entry whose key has this prefix."""
        ...

    def identities(self) -> dict[int, str]:
        """Return canonical JSON of worker identities by fingerprint."""
        ...

    def near(self, marks: Marks, limit: int) -> Iterator[str]:
        """Return materials with the same messages, and those whose prompts sort next to it: at most `limit` of each."""
        ...

    def claim(self, *keys: str) -> Sequence[CallClaim | None]:
        """Return the right to make the call of each key; None for keys that another process holds."""
        ...

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """See `ResponseCache.mark_sent`."""
        ...

    def close(self) -> None: ...
