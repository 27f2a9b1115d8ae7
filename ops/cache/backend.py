"""What the cache asks of a place that keeps rows; `local` and `shared` are the two there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ops.cache.keys import Marks
from ops.cache.rows import CacheRow, Head

CACHE_URL = "PODIUM_CACHE_URL"
"""The environment variable that names a shared cache, ``redis://HOST:PORT/DB``."""


class ClaimLost(Exception):
    """The claim is another's by now: this process was suspended, or cut off, for too long."""


class Claim(Protocol):
    """The right to make one call. Give it up through `release`, once, whatever became of the call."""

    def release(self) -> None: ...


class Backend(Protocol):
    """Rows by key. Any method may raise what `ResponseCache` says."""

    name: str
    """For messages to a person; holds no password."""

    def select(self, key: str) -> tuple[bytes, str] | None:
        """Body and checksum, as they are."""
        ...

    def insert(self, rows: Sequence[CacheRow]) -> None:
        """All of them or none; what is there is replaced."""
        ...

    def delete(self, keys: Sequence[str]) -> None: ...

    def holds(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that have a row."""
        ...

    def count(self) -> int: ...

    def heads(self) -> Iterator[Head]:
        """Every entry that is there from start to end, in no order, while others may write."""
        ...

    def rows(self) -> Iterator[CacheRow]:
        """The same entries in full."""
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

    def claim(self, *keys: str) -> Sequence[Claim | None]:
        """The right to make the call of each key; None while another has it."""
        ...

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        """As `ResponseCache` says."""
        ...

    def close(self) -> None: ...
