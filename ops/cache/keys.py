"""What makes two calls the same: the key of a response, and the text that it is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ops.core.response import Message, Sample

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
