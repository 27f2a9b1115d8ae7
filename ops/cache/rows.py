"""A stored response: its row, and how it gets into and out of bytes."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from ops.cache.keys import canonical
from ops.core.response import STORED, Response


class CacheRow(NamedTuple):
    """One entry as a backend keeps it: bytes as they were found, so that damage can be told."""

    key: str
    body: bytes
    checksum: str
    material: str
    created: float
    """Seconds since the epoch."""


class Head(NamedTuple):
    """What of an entry is read when all of them are looked at."""

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
