"""Indexes of the texts seen so far: near duplicates, and light rewordings.

Keys that two texts share propose a pair, and an exact comparison decides.

A short question loses most of its 5-grams when two of its words change, while a template
with other numbers keeps most of them. Therefore a rewording must have the same numbers,
formulas and negations, in any order, while content words may differ in a few places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ops.curation.question_text import Wording
from ops.curation.sketch import Hashes, Sketch, is_formula

Cause = Literal["contamination", "duplicate"]
"""The consequence of repeating a question: contamination for an evaluation question, else a duplicate."""


class Match(NamedTuple):
    """The question that a problem repeats, the kind of repetition ("exact", "near", …), and the similarity."""

    other: SeenQuestion
    kind: str
    similarity: float


class SeenQuestion(NamedTuple):
    """A question seen before: its reference, and the cause for removing a repetition of it."""

    reference: str
    cause: Cause


class _Entry(NamedTuple):
    known: SeenQuestion
    grams: Hashes


class KeyIndex:
    """The places of the texts under each of their keys.

    Nearly every key has one text, and a list is made only for a second one: a container for each of millions of keys
    would cost more in garbage collection than everything else here.
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
        """Return all places under any of the keys."""
        known = [key for key in keys if key in self._first]
        found = {self._first[key] for key in known}
        for key in known:
            found.update(self._others.get(key, ()))
        return found


class NearDuplicateIndex:
    """The texts seen so far; `find` returns the text that a problem repeats, if there is one."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._exact: dict[str, SeenQuestion] = {}
        self._entries: list[_Entry] = []
        self._buckets = KeyIndex()

    def add(self, known: SeenQuestion, sketch: Sketch) -> None:
        """Add a question; of exact duplicates only the first is kept."""
        for key in sketch.keys:
            self._exact.setdefault(key, known)
        self._buckets.add(sketch.bands, len(self._entries))
        self._entries.append(_Entry(known, sketch.grams))

    def find(self, sketch: Sketch) -> Match | None:
        """Return the text that this one repeats: an exact duplicate, else the most similar at or above the threshold.

        Of several, contamination has priority over duplicates.
        """
        for key in sketch.keys:
            if key in self._exact:
                return Match(self._exact[key], "exact", 1.0)
        proposed = (self._entries[place] for place in self._buckets.find(sketch.bands))
        scored = [
            (entry.known, jaccard_similarity(sketch.grams, entry.grams))
            for entry in proposed
            if _can_reach_threshold(len(sketch.grams), len(entry.grams), self.threshold)
        ]
        return choose_best_match("near", [pair for pair in scored if pair[1] >= self.threshold])


def choose_best_match(kind: str, scored: Sequence[tuple[SeenQuestion, float]]) -> Match | None:
    """Return the best match among the questions found, with
    similarities: contamination first, then the most similar.
    """
    if not scored:
        return None
    known, similarity = max(scored, key=lambda pair: (pair[0].cause == "contamination", pair[1], pair[0].reference))
    return Match(known, kind, round(similarity, 4))


def jaccard_similarity(grams: Hashes, other: Hashes) -> float:
    """Return the Jaccard similarity of two sets, |grams ∩ other| / |grams ∪ other|; 0 for two empty sets."""
    shared = len(np.intersect1d(grams, other, assume_unique=True))
    union = len(grams) + len(other) - shared
    return shared / union if union else 0.0


def _can_reach_threshold(size: int, other: int, threshold: float) -> bool:
    return min(size, other) >= threshold * max(size, other)


MIN_SHARED = 0.7
"""Share of all fixed tokens and content words that must agree."""
MIN_SHARED_CONTENT = 0.5
"""Share of the content words alone that must agree; all of one or two
words must agree. A few numbers cannot replace them.
"""
MAX_DIFFERING_WORDS = 2
"""Number of content words that may differ beside a formula."""
FREQUENT_SHARE, FREQUENT_COUNT, FREQUENT_WEIGHT = 0.01, 30, 0.25
"""Words in this share of the questions, and in at least this number of them, count with this weight."""


def find_frequent_words(sketches: Sequence[Sketch]) -> frozenset[str]:
    """Return content words that are too frequent to distinguish
    questions (`FREQUENT_SHARE`), such as those of a template.
    """
    counts = Counter(word for sketch in sketches for word in sketch.wording.content)
    least = max(FREQUENT_COUNT, FREQUENT_SHARE * len(sketches))
    return frozenset(word for word, count in counts.items() if count >= least)


class _WordedEntry(NamedTuple):
    known: SeenQuestion
    wording: Wording
    choices: frozenset[str]


class RewordingIndex:
    """The questions seen so far; `find` returns the question that a
    problem rewords. Words in `worn` have less weight.
    """

    def __init__(self, frequent_words: frozenset[str] = frozenset()) -> None:
        self._worn = frequent_words
        self._entries: list[_WordedEntry] = []
        self._buckets = KeyIndex()

    def add(self, known: SeenQuestion, sketch: Sketch) -> None:
        """Add a question."""
        self._buckets.add(sketch.probes, len(self._entries))
        self._entries.append(_WordedEntry(known, sketch.wording, sketch.choices))

    def find(self, sketch: Sketch) -> Match | None:
        """Return the question that this one rewords most lightly, if
        there is one; contamination has priority over duplicates.
        """
        entries = [self._entries[place] for place in self._buckets.find(sketch.probes)]
        scored = [(entry.known, self._similarity(sketch, entry)) for entry in entries]
        return choose_best_match("reworded", [pair for pair in scored if pair[1] >= MIN_SHARED])

    def _similarity(self, sketch: Sketch, entry: _WordedEntry) -> float:
        """Return the share of fixed tokens and content words that agree; 0 if a difference rules out a rewording."""
        (fixed, content), (its_fixed, its_content) = sketch.wording, entry.wording
        if fixed != its_fixed or not _has_similar_choices(sketch.choices, entry.choices):
            return 0.0
        size = max(self._weight(content), self._weight(its_content))
        shared = self._weight(content & its_content)
        if not size + len(fixed):
            return 0.0
        few = max(len(content), len(its_content)) <= 2
        agree = content == its_content if few else shared >= MIN_SHARED_CONTENT * size
        if not agree and not (is_formula(fixed) and size - shared <= MAX_DIFFERING_WORDS):
            return 0.0
        return (shared + len(fixed)) / (size + len(fixed))

    def _weight(self, words: frozenset[str]) -> float:
        return len(words) - (1 - FREQUENT_WEIGHT) * len(words & self._worn)


def _has_similar_choices(choices: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether at least half of the choices are shared; a question without choices matches any choices."""
    return not choices or not other or 2 * len(choices & other) >= max(len(choices), len(other))
