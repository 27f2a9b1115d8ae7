"""What a place that keeps responses offers, the keys that responses have there, and their form on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ops.core.response import STORED, Message, Response, Sample

# ASCII output: a lone surrogate in some worker's text must not make the key or the row impossible.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Canonical JSON: one text for one value."""

_BEFORE = '{"messages":'
_BETWEEN = '],"sample":'
"""No JSON string holds this (its quotes would be escaped), and a message's values are all strings."""
OPENING = 96
"""Characters of a prompt's beginning that an index holds: with them, related prompts are found."""


def cache_material(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """The canonical JSON of everything that can change a response."""
    return canonical({"messages": list(messages), "sample": Sample.of(sample).as_json(), "worker": identity})


def cache_key(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """SHA-256 (64 hex digits) of `cache_material`."""
    return hashlib.sha256(cache_material(identity, messages, sample).encode()).hexdigest()


class Marks(NamedTuple):
    """What an index keeps of a material: the start of its prompt, and fingerprints of its two large parts."""

    opening: str
    messages: int
    worker: int
    identity: str
    """Canonical JSON of the worker's identity."""


def marks(material: str) -> Marks:
    """Read them off a material's text, without parsing it. Text that is no material has empty ones."""
    cut = material.find(_BETWEEN)
    at = material.find(',"worker":', cut)
    if not material.startswith(_BEFORE) or cut < 0 or at < 0:
        return Marks("", 0, 0, "")
    messages, identity = material[len(_BEFORE) : cut + 1], material[at + len(',"worker":') : -1]
    return Marks(messages[:OPENING], fingerprint(messages), fingerprint(identity), identity)


def fingerprint(text: str) -> int:
    """64 bits of a text, as SQLite's signed integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class CacheRow(NamedTuple):
    """One entry as a backend keeps it: the bytes as read, so that damage can be detected."""

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
    """Canonical JSON of what is stored of a response, and its checksum."""
    body = canonical([getattr(response, name) for name in STORED]).encode()
    return body, _checksum(body)


def decode(body: bytes, checksum: str) -> Response | None:
    """The response with `cached=True`; None where the row is damaged."""
    if _checksum(body) != checksum:
        return None
    text, prompt_tokens, completion_tokens, cost_usd, latency_s, reason = json.loads(body.decode("ascii"))
    return Response(text, prompt_tokens, completion_tokens, cost_usd, latency_s, reason, cached=True)


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


CACHE_URL = "PODIUM_CACHE_URL"
"""The environment variable that names a shared cache, ``redis://HOST:PORT/DB``."""


class ClaimLost(Exception):
    """The claim is another's by now: this process was suspended, or cut off, for too long."""


class CallClaim(Protocol):
    """The right to make one call. Give it up through `release`, once, whatever became of the call."""

    def release(self) -> None: ...


class Backend(Protocol):
    """Rows by key. Any method may raise the exceptions of `ResponseCache`."""

    name: str
    """For messages to a person; holds no password."""

    def select(self, key: str) -> tuple[bytes, str] | None:
        """Body and checksum, as they are."""
        ...

    def insert(self, rows: Sequence[CacheRow]) -> None:
        """Store all entries or none; replaces existing ones."""
        ...

    def delete(self, keys: Sequence[str]) -> None: ...

    def holds(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that have a row."""
        ...

    def count(self) -> int: ...

    def heads(self) -> Iterator[Head]:
        """Every entry that exists during the whole iteration, in no order; other processes may write."""
        ...

    def rows(self) -> Iterator[CacheRow]:
        """The entries of `scan` in full."""
        ...

    def row(self, prefix: str) -> CacheRow | None:
        """The first entry whose key begins so."""
        ...

    def identities(self) -> dict[int, str]:
        """Canonical JSON of worker identities, by their fingerprint."""
        ...

    def near(self, marks: Marks, limit: int) -> Iterator[str]:
        """Materials with the same messages, and those whose prompts sort next to it: at most `limit` of each."""
        ...

    def claim(self, *keys: str) -> Sequence[CallClaim | None]:
        """The right to make the call of each key; None while another has it."""
        ...

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """As `ResponseCache` says."""
        ...

    def close(self) -> None: ...
