"""An index that finds a text's near duplicates: MinHash-LSH proposes, exact Jaccard decides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.curation.text import SHINGLE, Wording, exact_key, full_text, tokens, wording

Grams = NDArray[np.uint64]
"""A text's n-grams as sorted, distinct 64-bit hashes: a tenth of the memory of the strings."""

PERMUTATIONS = 128
MISSED = 1e-3
"""Largest share of pairs at the threshold that the proposal step may miss; above it fewer."""
LONG_QUESTION = 60
"""Characters (spaces out) from which an equal question counts, whatever choices stand below it."""
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15 ** (i + 1) % 2**64 | 1 for i in range(SHINGLE)], dtype=np.uint64)


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


class Sketch(NamedTuple):
    """What is compared of one problem: its exact keys, n-grams with their MinHash, and its wording."""

    keys: tuple[str, ...]
    grams: Grams
    minhash: Any
    wording: Wording
    words: Grams
    """Hashes of the content words."""
    choices: frozenset[str]


class _Entry(NamedTuple):
    known: Known
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
        self._exact: dict[str, Known] = {}
        self._entries: list[_Entry] = []
        # Band keys live in memory only, so Python's own hash will do.
        self._lsh = MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold), hashfunc=hash)

    def add(self, known: Known, sketch: Sketch) -> None:
        """Remember a question; of exact twins the first is remembered."""
        for key in sketch.keys:
            self._exact.setdefault(key, known)
        self._lsh.insert(len(self._entries), sketch.minhash, check_duplication=False)
        self._entries.append(_Entry(known, sketch.grams))

    def find(self, sketch: Sketch) -> Match | None:
        """The text that this one repeats: an exact twin, else the most similar at or above the threshold.

        Of several, contamination goes before duplicates.
        """
        for key in sketch.keys:
            if key in self._exact:
                return Match(self._exact[key], "exact", 1.0)
        proposed = (self._entries[place] for place in self._lsh.query(sketch.minhash))
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


class Sketcher:
    """Makes sketches; each distinct token is hashed once."""

    def __init__(self) -> None:
        from datasketch import MinHash

        # The n-grams are hashed already; MinHash takes 32 bits of each.
        self._empty = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int)
        self._hashes: dict[str, int] = {}

    def sketch(self, problem: Problem) -> Sketch:
        text = full_text(problem)
        question = tokens(problem.question)
        # Choices come after the question in the full text, so its tokens begin with the question's.
        hashes = self._hashed([*question, *(word for choice in sorted(problem.choices) for word in tokens(choice))])
        grams = _windows(hashes)
        minhash = self._empty.copy()
        minhash.update_batch(grams >> np.uint64(32))
        made_of = wording(question)
        return Sketch(
            _keys(problem, text),
            grams,
            minhash,
            made_of,
            self._hashed(sorted(made_of.content)),
            frozenset(exact_key(choice) for choice in problem.choices),
        )

    def _hashed(self, words: Sequence[str]) -> Grams:
        known = self._hashes
        for word in words:
            if word not in known:
                known[word] = _digest(word)
        return np.fromiter((known[word] for word in words), dtype=np.uint64, count=len(words))


def jaccard(grams: Grams, other: Grams) -> float:
    """Shared share of two sets: |grams ∩ other| / |grams ∪ other|; 0 for two empty ones."""
    shared = len(np.intersect1d(grams, other, assume_unique=True))
    union = len(grams) + len(other) - shared
    return shared / union if union else 0.0


def _keys(problem: Problem, text: str) -> tuple[str, ...]:
    question = exact_key(problem.question)
    whole = exact_key(text) if problem.choices else question
    return (whole, f"question:{question}") if len(question) >= LONG_QUESTION else (whole,)


def _windows(hashes: Grams) -> Grams:
    """One hash for each 5-token window: a sum of odd multiples, then mixed, so that low bits are as good as high."""
    width = min(SHINGLE, max(len(hashes), 1))
    count = max(len(hashes) - width + 1, 0)
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(width):
        mixed += hashes[place : place + count] * _MULTIPLIERS[place]
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed)


def _digest(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _could_reach(size: int, other: int, threshold: float) -> bool:
    return min(size, other) >= threshold * max(size, other)
