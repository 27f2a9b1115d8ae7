"""Entries of the store: their kinds, keys and format, and the interface of a database that holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ops.core.messages import Message, Sample
from ops.core.response import NO_RESPONSE, Response

# ASCII output: a lone surrogate in some worker's text must not make the key or the row impossible.
canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Encode a value as canonical JSON: one text for one value."""


class Kind(StrEnum):
    """What a value is. Each kind has keys of its own."""

    RESPONSE = "response"
    """A worker's paid response; the entry keeps the text of its request."""
    COMPLETION = "completion"
    """What a policy wrote for a prompt."""
    VERDICT = "verdict"
    """What a grader found by running a program."""


_BEFORE = '{"messages":'
_BETWEEN = '],"sample":'
"""A text in no JSON string (its quotes would be escaped); all values of a message are strings."""
OPENING_CHARS = 96
"""Characters of a prompt's beginning that an index stores, by which related prompts are found."""


def cache_material(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the canonical JSON of everything that can change a response."""
    return canonical_json({"messages": list(messages), "sample": Sample.of(sample).as_json(), "worker": identity})


def cache_key(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the SHA-256 (64 hex digits) of `cache_material`."""
    return hashlib.sha256(cache_material(identity, messages, sample).encode()).hexdigest()


class IndexedParts(NamedTuple):
    """The indexed parts of a material: the start of its prompt, and fingerprints of its two large parts."""

    opening: str
    messages: int
    worker: int
    identity: str
    """Canonical JSON of the worker's identity."""


def extract_indexed_parts(material: str) -> IndexedParts:
    """Return the marks of a material's text without parsing it; empty marks for other text."""
    cut = material.find(_BETWEEN)
    at = material.find(',"worker":', cut)
    if not material.startswith(_BEFORE) or cut < 0 or at < 0:
        return IndexedParts("", 0, 0, "")
    messages, identity = material[len(_BEFORE) : cut + 1], material[at + len(',"worker":') : -1]
    return IndexedParts(messages[:OPENING_CHARS], fingerprint(messages), fingerprint(identity), identity)


def fingerprint(text: str) -> int:
    """Return 64 bits of a text's hash as SQLite's signed integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


_USUAL_FIELDS = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")
"""Fields of a response that every entry holds, in their order in the entry."""
_DEFAULTS = NO_RESPONSE.as_stored()


class Entry(NamedTuple):
    """One entry as stored: the bytes as read, so that damage can be detected."""

    kind: str
    key: str
    body: bytes
    """The value as canonical JSON."""
    checksum: str
    material: str
    """A response's request (`cache_material`), of which the key is the hash; "" for the other kinds, because prompts
    and programs may hold questions of confidential benchmarks."""
    created: float
    """Seconds since the epoch."""

    @classmethod
    def from_response(cls, key: str, material: str, response: Response, created: float) -> Entry:
        """Return the entry of a worker's response.

        Its usual fields are a list; the others follow at the end by name, if they differ from their defaults.
        """
        stored = response.as_stored()
        values = [stored.pop(name) for name in _USUAL_FIELDS]
        special = {name: value for name, value in stored.items() if value != _DEFAULTS[name]}
        body = canonical_json([*values, special] if special else values).encode()
        return cls(Kind.RESPONSE, key, body, compute_checksum(Kind.RESPONSE, key, body), material, created)

    @classmethod
    def from_value(cls, kind: Kind, key: str, value: Any, created: float) -> Entry:
        """Return the entry of another kind of value, which can be written as JSON."""
        body = canonical_json(value).encode()
        return cls(kind, key, body, compute_checksum(kind, key, body), "", created)

    @property
    def is_sound(self) -> bool:
        """Whether kind, key, request and value are what was written."""
        if compute_checksum(self.kind, self.key, self.body) != self.checksum:
            return False
        return self.kind != Kind.RESPONSE or self.key == hashlib.sha256(self.material.encode()).hexdigest()


class EntryHeader(NamedTuple):
    """The fields of an entry that a scan reads."""

    kind: str
    key: str
    worker: int
    created: float
    size: int
    """Bytes of value and request."""


class StoredValue(NamedTuple):
    """The value of an entry as stored."""

    body: bytes
    checksum: str


def compute_checksum(kind: str, key: str, body: bytes) -> str:
    """Return the checksum that an entry keeps, by which damage to it is noticed.

    That of a response leaves its key out, which is the hash of its material; other kinds have no material.
    """
    name = b"" if kind == Kind.RESPONSE else key.encode(errors="surrogateescape")
    return hashlib.blake2b(name + body, digest_size=8).hexdigest()


def decode_response(key: str, stored: StoredValue) -> Response | None:
    """Return the response with `cached=True`; None if the entry is damaged."""
    if compute_checksum(Kind.RESPONSE, key, stored.body) != stored.checksum:
        return None
    values = json.loads(stored.body.decode("ascii"))
    fields = dict(zip(_USUAL_FIELDS, values, strict=False))
    if len(values) > len(_USUAL_FIELDS):
        fields |= values[-1]
    return Response.from_stored(fields, cached=True)


CACHE_URL = "PODIUM_CACHE_URL"
"""The environment variable that names a server for a team: ``redis://HOST:PORT/DB`` or ``postgresql://HOST:PORT/DB``.
"""


class ClaimLost(Exception):
    """Another process holds the claim: this process was suspended, or disconnected, for too long."""


class Claim(Protocol):
    """The right to compute one value, or to make one call. Give it up once through `release`, whatever the result."""

    def release(self) -> None: ...


def claim_name(kind: Kind, key: str) -> str:
    """Return the name of the claim of a value; a response's is its key."""
    return key if kind is Kind.RESPONSE else f"{kind}:{key}"


class Backend(Protocol):
    """A database of entries. Any method may raise the exceptions of `ResponseCache`."""

    name: str
    """Name for messages; contains no password."""

    def select(self, kind: Kind, keys: Sequence[str]) -> dict[str, StoredValue]:
        """Return the stored value of each key that has an entry."""
        ...

    def insert(self, entries: Sequence[Entry]) -> None:
        """Store all entries or none; replaces existing ones."""
        ...

    def delete(self, kind: str, keys: Sequence[str]) -> None: ...

    def find_existing(self, kind: Kind, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have an entry."""
        ...

    def count(self, kind: Kind) -> int: ...

    def iterate_headers(self) -> Iterator[EntryHeader]:
        """Give every entry that exists during the whole iteration, in any order; other processes may write."""
        ...

    def iterate_entries(self) -> Iterator[Entry]:
        """Give the entries of `iterate_headers` in full."""
        ...

    def find(self, prefix: str) -> Entry | None:
        """Return the first entry whose key has this prefix."""
        ...

    def worker_identities(self) -> dict[int, str]:
        """Return canonical JSON of worker identities by fingerprint."""
        ...

    def find_similar(self, marks: IndexedParts, limit: int) -> Iterator[str]:
        """Return materials with the same messages, and those whose prompts sort next to it: at most `limit` of each."""
        ...

    def claim(self, kind: Kind, keys: Sequence[str]) -> Sequence[Claim | None]:
        """Return the right to compute the value of each key; None for keys that another process or thread holds."""
        ...

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """See `ResponseCache.mark_sent`."""
        ...

    def close(self) -> None: ...
