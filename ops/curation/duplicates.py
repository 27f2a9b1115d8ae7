"""An index that finds a text's near duplicates: MinHash-LSH proposes, exact Jaccard decides.

What belongs here: the index. What does not: which texts go in and what a hit means
(`decontaminate`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.curation.text import exact_key, full_text, shingles
from ops.problem import Problem

Grams = NDArray[np.uint64]
"""A text's n-grams as sorted, distinct 64-bit hashes: a tenth of the memory of the strings."""

PERMUTATIONS = 128
MISSED = 1e-3
"""Largest share of pairs at the threshold that the proposal step may miss; above it fewer."""
LONG_QUESTION = 60
"""Characters (spaces out) from which an equal question counts, whatever choices stand below it."""


class Match(NamedTuple):
    """What a problem was found to repeat: the other's reference, how, and their Jaccard similarity."""

    other: str
    kind: str
    jaccard: float


class _Entry(NamedTuple):
    reference: str
    grams: Grams


def bands(threshold: float) -> tuple[int, int]:
    """(bands, rows) for MinHash-LSH: the most selective that misses at most `MISSED` at the threshold."""
    best = (PERMUTATIONS, 1)
    for rows in range(2, PERMUTATIONS // 2 + 1):
        count = PERMUTATIONS // rows
        if (1 - threshold**rows) ** count <= MISSED:
            best = (count, rows)
    return best


class NearDuplicates:
    """Texts seen so far; `find` says which of them, if any, a problem repeats."""

    def __init__(self, threshold: float) -> None:
        from datasketch import MinHashLSH

        self.threshold = threshold
        self._exact: dict[str, str] = {}
        self._entries: list[_Entry] = []
        self._lsh = MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold), hashfunc=_hashed)

    def add(self, problem: Problem, sketch: Sketch) -> None:
        """Remember `problem`; of exact twins the first is remembered."""
        for key in sketch.keys:
            self._exact.setdefault(key, reference(problem))
        self._lsh.insert(len(self._entries), sketch.minhash, check_duplication=False)
        self._entries.append(_Entry(reference(problem), sketch.grams))

    def find(self, sketch: Sketch) -> Match | None:
        """The text that this one repeats: an exact twin, else the most similar at or above the threshold."""
        for key in sketch.keys:
            if key in self._exact:
                return Match(self._exact[key], "exact", 1.0)
        scored = [
            (jaccard(sketch.grams, entry.grams), entry.reference)
            for entry in (self._entries[place] for place in self._lsh.query(sketch.minhash))
            if _could_reach(len(sketch.grams), len(entry.grams), self.threshold)
        ]
        similarity, other = max(scored, key=lambda pair: (pair[0], pair[1]), default=(0.0, ""))
        return Match(other, "near", round(similarity, 4)) if similarity >= self.threshold else None


class Sketch(NamedTuple):
    """What is compared of one problem: its exact keys, its n-grams and their MinHash."""

    keys: tuple[str, ...]
    grams: Grams
    minhash: Any


def reference(problem: Problem) -> str:
    """`BENCHMARK/ID`: a problem's name across benchmarks."""
    return f"{problem.benchmark}/{problem.id}"


def sketches(problems: Iterable[Problem]) -> Iterator[Sketch]:
    """One sketch a problem, in order."""
    from datasketch import MinHash

    # The n-grams are hashed already; MinHash takes 32 bits of each.
    empty = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int)
    for problem in problems:
        text = full_text(problem)
        grams = np.unique(np.array([_hashed(gram.encode()) for gram in shingles(text)], dtype=np.uint64))
        keys = [exact_key(text)]
        question = exact_key(problem.question)
        if len(question) >= LONG_QUESTION:
            keys.append(f"question:{question}")
        minhash = empty.copy()
        minhash.update_batch(grams & np.uint64(0xFFFF_FFFF))
        yield Sketch(tuple(keys), grams, minhash)


def jaccard(one: Grams, other: Grams) -> float:
    """Shared share of two sets: |one ∩ other| / |one ∪ other|; 0 for two empty ones."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - shared
    return shared / union if union else 0.0


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _could_reach(one: int, other: int, threshold: float) -> bool:
    return min(one, other) >= threshold * max(one, other)
