"""Indexes of the texts seen so far, which find near duplicates and light rewordings.

Keys that two texts share propose a pair, and an exact comparison decides.

A short question loses most of its 5-grams when two of its words change, while a template with other numbers keeps most
of them. Therefore a rewording must have the same numbers, formulas and negations, in any order, while content words may
differ in a few places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ops.curation.question_features import Hashes, Sketch, is_formula
from ops.curation.question_text import Wording

Cause = Literal["contamination", "duplicate"]
"""The reason for removing a repetition: contamination if it repeats an evaluation question, otherwise duplicate."""


class Match(NamedTuple):
    """The question that a problem repeats, the kind of repetition ("exact", "near", …), and the similarity (0 to 1)."""

    other: SeenQuestion
    kind: str
    similarity: float


class SeenQuestion(NamedTuple):
    """A question that was seen before: its reference, and the cause for removing a repetition of it."""

    reference: str
    cause: Cause


class _Entry(NamedTuple):
    known: SeenQuestion
    grams: Hashes


class KeyIndex:
    """An index from keys to the numbers of the texts that have them.

    Nearly every key belongs to one text, and a list is made only for a second one: a container for each of millions of
    keys would cost more in garbage collection than everything else here.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._others: dict[int, list[int]] = {}

    def add(self, keys: Sequence[int], place: int) -> None:
        """Add the text with the number `place` under every key."""
        for key in keys:
            if self._first.setdefault(key, place) != place:
                self._others.setdefault(key, []).append(place)

    def find(self, keys: Sequence[int]) -> set[int]:
        """Return the numbers of all texts that have any of the keys."""
        known = [key for key in keys if key in self._first]
        found = {self._first[key] for key in known}
        for key in known:
            found.update(self._others.get(key, ()))
        return found


class NearDuplicateIndex:
    """An index of texts that finds exact duplicates, and near duplicates by the Jaccard similarity of their n-grams."""

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
        """Return the text that this one repeats: an exact duplicate, otherwise the most similar at or above the
        threshold.

        An evaluation question has priority over another candidate.
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
    """Return the best of the questions found, with their similarities: evaluation questions first, then the most
    similar."""
    if not scored:
        return None
    known, similarity = max(scored, key=lambda pair: (pair[0].cause == "contamination", pair[1], pair[0].reference))
    return Match(known, kind, round(similarity, 4))


def jaccard_similarity(grams: Hashes, other: Hashes) -> float:
    """Return the Jaccard similarity of two sets of n-grams, |grams ∩ other| / |grams ∪ other|; 0 for two empty sets."""
    shared = len(np.intersect1d(grams, other, assume_unique=True))
    union = len(grams) + len(other) - shared
    return shared / union if union else 0.0


def _can_reach_threshold(size: int, other: int, threshold: float) -> bool:
    return min(size, other) >= threshold * max(size, other)


MIN_SHARED = 0.7
"""The share of all fixed tokens and content words that a rewording must keep."""
MIN_SHARED_CONTENT = 0.5
"""The share of the content words that a rewording must keep. Questions with one or two content words must keep all of
them, because a few equal numbers cannot replace them."""
MAX_DIFFERING_WORDS = 2
"""The number of content words that may differ beside an equal formula."""
FREQUENT_SHARE, FREQUENT_COUNT, FREQUENT_WEIGHT = 0.01, 30, 0.25
"""Words in `FREQUENT_SHARE` of the questions, and in at least `FREQUENT_COUNT` of them, count with the weight
`FREQUENT_WEIGHT`."""


def find_frequent_words(sketches: Sequence[Sketch]) -> frozenset[str]:
    """Return the content words that are too frequent to distinguish questions, such as those of a template."""
    counts = Counter(word for sketch in sketches for word in sketch.wording.content)
    least = max(FREQUENT_COUNT, FREQUENT_SHARE * len(sketches))
    return frozenset(word for word, count in counts.items() if count >= least)


class _WordedEntry(NamedTuple):
    known: SeenQuestion
    wording: Wording
    choices: frozenset[str]


class RewordingIndex:
    """An index of questions that finds light rewordings; `frequent_words` have less weight."""

    def __init__(self, frequent_words: frozenset[str] = frozenset()) -> None:
        self._worn = frequent_words
        self._entries: list[_WordedEntry] = []
        self._buckets = KeyIndex()

    def add(self, known: SeenQuestion, sketch: Sketch) -> None:
        """Add a question."""
        self._buckets.add(sketch.probes, len(self._entries))
        self._entries.append(_WordedEntry(known, sketch.wording, sketch.choices))

    def find(self, sketch: Sketch) -> Match | None:
        """Return the question that this one rewords most lightly, if there is one; an evaluation question has
        priority."""
        entries = [self._entries[place] for place in self._buckets.find(sketch.probes)]
        scored = [(entry.known, self._similarity(sketch, entry)) for entry in entries]
        return choose_best_match("reworded", [pair for pair in scored if pair[1] >= MIN_SHARED])

    def _similarity(self, sketch: Sketch, entry: _WordedEntry) -> float:
        """Return the share of fixed tokens and content words that agree; 0 if a difference excludes a rewording."""
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
