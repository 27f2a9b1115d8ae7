"""Indexes of the texts seen so far: keys that two texts share propose a pair, an exact comparison decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ops.curation.sketch import Hashes, Sketch

Cause = Literal["contamination", "duplicate"]
"""What it is to repeat a question: of the evaluation, or another candidate."""


class Match(NamedTuple):
    """What a problem was found to repeat: the other, how ("exact", "near", …), and how alike they are."""

    other: Known
    kind: str
    similarity: float


class Known(NamedTuple):
    """A question seen before: its reference, and what it would be to repeat it."""

    reference: str
    cause: Cause


class _Entry(NamedTuple):
    known: Known
    grams: Hashes


class Buckets:
    """The places of the texts under each of their keys.

    Nearly every key has one text, and only a second one makes a list: a container for each of millions of keys would
    cost more in garbage collection than everything else here.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._others: dict[int, list[int]] = {}

    def add(self, keys: Sequence[int], place: int) -> None:
        """Put `place` under every key."""
        for key in keys:
            if self._first.setdefault(key, place) != place:
                self._others.setdefault(key, []).append(place)

    def find(self, keys: Sequence[int]) -> set[int]:
        """All places under any of the keys."""
        known = [key for key in keys if key in self._first]
        found = {self._first[key] for key in known}
        for key in known:
            found.update(self._others.get(key, ()))
        return found


class NearDuplicates:
    """Texts seen so far; `find` says which of them, if any, a problem repeats."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._exact: dict[str, Known] = {}
        self._entries: list[_Entry] = []
        self._buckets = Buckets()

    def add(self, known: Known, sketch: Sketch) -> None:
        """Remember a question; of exact twins the first is remembered."""
        for key in sketch.keys:
            self._exact.setdefault(key, known)
        self._buckets.add(sketch.bands, len(self._entries))
        self._entries.append(_Entry(known, sketch.grams))

    def find(self, sketch: Sketch) -> Match | None:
        """The text that this one repeats: an exact twin, else the most similar at or above the threshold.

        Of several, contamination goes before duplicates.
        """
        for key in sketch.keys:
            if key in self._exact:
                return Match(self._exact[key], "exact", 1.0)
        proposed = (self._entries[place] for place in self._buckets.find(sketch.bands))
        scored = [
            (entry.known, jaccard(sketch.grams, entry.grams))
            for entry in proposed
            if _could_reach(len(sketch.grams), len(entry.grams), self.threshold)
        ]
        return best_of("near", [pair for pair in scored if pair[1] >= self.threshold])


def best_of(kind: str, scored: Sequence[tuple[Known, float]]) -> Match | None:
    """The most telling of the questions found, with their similarities: contamination first, then the most similar."""
    if not scored:
        return None
    known, similarity = max(scored, key=lambda pair: (pair[0].cause == "contamination", pair[1], pair[0].reference))
    return Match(known, kind, round(similarity, 4))


def jaccard(grams: Hashes, other: Hashes) -> float:
    """Shared share of two sets: |grams ∩ other| / |grams ∪ other|; 0 for two empty ones."""
    shared = len(np.intersect1d(grams, other, assume_unique=True))
    union = len(grams) + len(other) - shared
    return shared / union if union else 0.0


def _could_reach(size: int, other: int, threshold: float) -> bool:
    return min(size, other) >= threshold * max(size, other)
