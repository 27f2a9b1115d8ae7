"""The entries of the store: their kinds, keys and format, and the interface of the databases that hold them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ops.core.messages import Message, Sample
from ops.core.response import NO_RESPONSE, Response

# The output is ASCII, so that a lone surrogate in a worker's text can be encoded and stored.
canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Encode a value as canonical JSON, in which equal values have equal texts."""


class Kind(StrEnum):
    """The kind of a stored value. Keys of different kinds are independent of each other."""

    RESPONSE = "response"
    """A worker's paid response. Its entry also holds the text of the request."""
    COMPLETION = "completion"
    """A policy's completion of a prompt."""
    VERDICT = "verdict"
    """A grader's verdict on a program that it has run."""


_KINDS = frozenset(Kind)


def cache_material(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the request as canonical JSON: worker identity, messages and sample, which together determine a
    response."""
    return canonical_json({"messages": list(messages), "sample": Sample.of(sample).as_json(), "worker": identity})


def cache_key(identity: Mapping[str, Any], messages: Sequence[Message], sample: int | Sample) -> str:
    """Return the key of a response: the SHA-256 of `cache_material` as 64 hex digits."""
    return hashlib.sha256(cache_material(identity, messages, sample).encode()).hexdigest()


_USUAL_FIELDS = ("text", "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "finish_reason")
"""Fields of a response that every entry has, in the order in which they are stored."""
_DEFAULTS = NO_RESPONSE.as_stored()


class Entry(NamedTuple):
    """An entry as it is stored. Texts are kept as the bytes that were read, so that damage can be detected."""

    kind: str
    key: str
    body: bytes
    """The value as canonical JSON."""
    checksum: str
    material: str
    """The request of a response (`cache_material`), whose hash is the key.

    It is "" for the other kinds, because prompts and programs may contain questions of confidential benchmarks.
    """
    created: float
    """Time of storing, in seconds since the epoch."""

    @classmethod
    def from_response(cls, key: str, material: str, response: Response, created: float) -> Entry:
        """Return the entry of a worker's response.

        The body is a list of the usual fields, followed by a dictionary of other fields that differ from their
        defaults, if any.
        """
        stored = response.as_stored()
        values = [stored.pop(name) for name in _USUAL_FIELDS]
        special = {name: value for name, value in stored.items() if value != _DEFAULTS[name]}
        body = canonical_json([*values, special] if special else values).encode()
        return cls(Kind.RESPONSE, key, body, compute_checksum(Kind.RESPONSE, key, body), material, created)

    @classmethod
    def from_value(cls, kind: Kind, key: str, value: Any, created: float) -> Entry:
        """Return the entry of a completion or verdict, given as a value that JSON can represent."""
        body = canonical_json(value).encode()
        return cls(kind, key, body, compute_checksum(kind, key, body), "", created)

    @property
    def worker(self) -> str:
        """The identity of a response's worker as canonical JSON, which is read without parsing the whole request.

        It is "" if the text is not a request.
        """
        # The first separator cannot occur in the messages, whose values are strings, because their quotes are escaped.
        _, is_request, rest = self.material.partition('],"sample":')
        _, _, identity = rest.partition(',"worker":')
        return identity[:-1] if is_request else ""

    @property
    def is_sound(self) -> bool:
        """True if kind, key, request and value are what was written."""
        if self.kind not in _KINDS or compute_checksum(self.kind, self.key, self.body) != self.checksum:
            return False
        return self.kind != Kind.RESPONSE or self.key == hashlib.sha256(self.material.encode()).hexdigest()


class StoredValue(NamedTuple):
    """The value of an entry as it is stored, with its checksum."""

    body: bytes
    checksum: str


def compute_checksum(kind: str, key: str, body: bytes) -> str:
    """Return the checksum of an entry, with which damage is detected (16 hex digits).

    It covers the key, except for a response, whose key is checked as the hash of its request.
    """
    name = b"" if kind == Kind.RESPONSE else key.encode(errors="surrogateescape")
    return hashlib.blake2b(name + body, digest_size=8).hexdigest()


def decode_response(key: str, stored: StoredValue) -> Response | None:
    """Return the stored response with `cached=True`; None if the entry is damaged."""
    if compute_checksum(Kind.RESPONSE, key, stored.body) != stored.checksum:
        return None
    stored_values = json.loads(stored.body.decode("ascii"))
    fields = dict(zip(_USUAL_FIELDS, stored_values, strict=False))
    if len(stored_values) > len(_USUAL_FIELDS):
        fields |= stored_values[-1]
    return Response.from_stored(fields, cached=True)


CACHE_URL = "PODIUM_CACHE_URL"
"""The environment variable with the address of a team's store: ``redis://HOST:PORT/DB`` or
``postgresql://HOST:PORT/DB``."""


class ClaimLost(Exception):
    """Another process has taken over the claim, because this process was suspended or disconnected for too long."""


class Claim(Protocol):
    """The exclusive right to compute one value or to make one call. It must be released once, whatever the outcome."""

    def release(self) -> None:
        """Release the right."""
        ...


def claim_name(kind: Kind, key: str) -> str:
    """Return the name of the claim on a value. For a response it is the key itself."""
    return key if kind is Kind.RESPONSE else f"{kind}:{key}"


class Backend(Protocol):
    """A database of entries. Every method may raise the exceptions that `ResponseCache` lists."""

    name: str
    """The name of the database in messages, without a password."""

    def select(self, kind: Kind, keys: Sequence[str]) -> dict[str, StoredValue]:
        """Return the stored values by key, for those keys that have an entry."""
        ...

    def insert(self, entries: Sequence[Entry]) -> None:
        """Store all of these entries or none of them. Existing entries are replaced."""
        ...

    def delete(self, kind: str, keys: Sequence[str]) -> None:
        """Delete the entries of one kind with these keys."""
        ...

    def find_existing(self, kind: Kind, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have an entry."""
        ...

    def count(self, kind: Kind) -> int:
        """Return the number of entries of one kind."""
        ...

    def iterate_entries(self) -> Iterator[Entry]:
        """Yield all entries that exist during the whole iteration, in any order. Other processes may write
        meanwhile."""
        ...

    def find(self, prefix: str) -> Entry | None:
        """Return the first entry whose key begins with `prefix`; None if there is none."""
        ...

    def claim(self, kind: Kind, keys: Sequence[str]) -> Sequence[Claim | None]:
        """Return for each key, in order, the right to compute its value, or None if another process or thread has
        it."""
        ...

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """Record that the calls of these keys are sent now (see `ResponseCache.mark_sent`)."""
        ...

    def close(self) -> None:
        """Close the connections. The next use opens them again."""
        ...
