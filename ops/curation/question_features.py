"""The features of a question that are compared, computed once: exact keys, hashed n-grams, and keys for the indexes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.curation.question_text import (
    NGRAM_TOKENS,
    Wording,
    join_question_and_choices,
    make_exact_key,
    split_wording,
    tokenize,
)

Hashes = NDArray[np.uint64]

PERMUTATIONS = 128
MAX_MISS_RATE = 1e-3
"""The largest share of pairs at the threshold that MinHash-LSH may miss; above the threshold it misses fewer."""
LONG_QUESTION_CHARACTERS = 60
"""The number of characters without spaces from which an equal question counts as a repetition even with other choices.
"""
MIN_FORMULA_TOKENS = 6
"""The number of different fixed tokens that make a question a formula, which can replace content words."""
MIN_DISTINGUISHING_TOKENS = 4
"""The number of fixed tokens that is enough to distinguish questions."""
MAX_FEW_WORDS = 8
PROBES = 8
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15 ** (i + 1) % 2**64 | 1 for i in range(NGRAM_TOKENS)], dtype=np.uint64)
_SEEDS = np.random.Generator(np.random.PCG64(7)).integers(1, 2**63, (2, 2 * PROBES), dtype=np.uint64) | np.uint64(1)


class Sketch(NamedTuple):
    """The compared features of one problem."""

    keys: tuple[str, ...]
    """Keys that are equal for questions with the same text."""
    grams: Hashes
    """The sorted, distinct hashes of the text's n-grams, which take a tenth of the memory of the strings."""
    bands: list[int]
    """A key for each band of the n-grams' MinHash; near duplicates share at least one."""
    wording: Wording
    probes: list[int]
    """Keys of which light rewordings share at least one."""
    choices: frozenset[str]


class Sketcher:
    """Computes sketches and hashes each distinct token once; `threshold` is the Jaccard similarity of near
    duplicates."""

    def __init__(self, threshold: float) -> None:
        from datasketch import MinHash

        # The n-grams are hashed already; MinHash uses 32 bits of each.
        self._empty = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int)
        self._bands, self._rows = choose_bands(threshold)
        self._places = np.arange(self._bands, dtype=np.uint64)
        self._hashes = _TokenHashes()

    def sketch(self, problem: Problem) -> Sketch:
        """Compute all compared features of `problem`."""
        question = tokenize(problem.question)
        # Choices come after the question in the full text, so its tokens begin with the question's.
        grams = _hash_ngrams(
            self._hashed([*question, *(word for text in sorted(problem.choices) for word in tokenize(text))])
        )
        minhash = self._empty.copy()
        minhash.update_batch(grams >> np.uint64(32))
        rows = minhash.hashvalues[: self._bands * self._rows].reshape(self._bands, self._rows)
        made_of = split_wording(question)
        return Sketch(
            _make_exact_keys(problem),
            grams,
            _hash_rows(rows, self._places),
            made_of,
            _make_probes(made_of.fixed, self._hashed(sorted(made_of.content))),
            frozenset(make_exact_key(choice) for choice in problem.choices),
        )

    def _hashed(self, words: Sequence[str]) -> Hashes:
        return np.fromiter(map(self._hashes.__getitem__, words), dtype=np.uint64, count=len(words))


class _TokenHashes(dict[str, int]):
    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = value = int.from_bytes(digest, "big")
        return value


def choose_bands(threshold: float) -> tuple[int, int]:
    """Return (bands, rows) for MinHash-LSH: the most selective pair that misses at most `MAX_MISS_RATE` at the
    threshold."""
    best = (PERMUTATIONS, 1)
    for rows in range(2, PERMUTATIONS // 2 + 1):
        count = PERMUTATIONS // rows
        if (1 - threshold**rows) ** count <= MAX_MISS_RATE:
            best = (count, rows)
    return best


def _make_exact_keys(problem: Problem) -> tuple[str, ...]:
    question = make_exact_key(problem.question)
    whole = make_exact_key(join_question_and_choices(problem)) if problem.choices else question
    return (whole, f"question:{question}") if len(question) >= LONG_QUESTION_CHARACTERS else (whole,)


def _hash_ngrams(hashes: Hashes) -> Hashes:
    """Return one hash for each 5-token window: a sum of odd
    multiples, mixed so that low bits are as random as high bits.
    """
    width = min(NGRAM_TOKENS, max(len(hashes), 1))
    count = max(len(hashes) - width + 1, 0)
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(width):
        mixed += hashes[place : place + count] * _MULTIPLIERS[place]
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed)


def _hash_rows(rows: Hashes, start: Hashes) -> list[int]:
    """Return a 64-bit hash of each row, mixed with the row's entry of `start`."""
    mixed = start.copy()
    for column in rows.T:
        mixed = (mixed ^ column) * _MULTIPLIERS[0]
        mixed ^= mixed >> np.uint64(32)
    keys: list[int] = mixed.tolist()
    return keys


def _make_probes(fixed_tokens: tuple[str, ...], words: Hashes) -> list[int]:
    """Return MinHashes of the content words, each joined with all fixed tokens.

    Questions with few fixed tokens need two common MinHashes; otherwise
    the buckets of common words would grow with the square of the data.
    """
    fixed = np.uint64(hash(fixed_tokens) & 0xFFFF_FFFF_FFFF_FFFF)
    keys = [int(fixed)] if is_formula(fixed_tokens) or not len(words) else []
    if not len(words):
        return keys
    lowest = _compute_minhash(words) ^ fixed
    telling = len(fixed_tokens) >= MIN_DISTINGUISHING_TOKENS
    if telling or len(words) <= MAX_FEW_WORDS:
        keys += lowest[:PROBES].tolist()
    if not telling and 2 * len(words) > MAX_FEW_WORDS:
        keys += (lowest[:PROBES] * _SEEDS[0, 0] + lowest[PROBES:]).tolist()
    return keys


def _compute_minhash(words: Hashes) -> Hashes:
    mixed = words[:, None] * _SEEDS[0] + _SEEDS[1]
    mixed ^= mixed >> np.uint64(31)
    lowest: Hashes = (mixed * _SEEDS[0, 1]).min(axis=0)
    return lowest


def is_formula(fixed: tuple[str, ...]) -> bool:
    """Return whether the fixed tokens (numbers, signs) of a question
    are a formula: at least `FORMULA` different ones.
    """
    return len(set(fixed)) >= MIN_FORMULA_TOKENS
