"""An index of light rewordings: the same numbers and formulas, and most of the same words.

A short question loses most of its 5-grams when two of its words change, while a template filled with
other numbers keeps most of them. So here the numbers, formulas and negations of the two must be the
same, whatever their order, and the words that carry content may differ in a few places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ops.curation.duplicates import Buckets, Known, Match, best_of
from ops.curation.sketch import Sketch, is_formula
from ops.curation.text import Wording

SAME = 0.7
"""Share of all fixed tokens and content words that must agree."""
SAME_CONTENT = 0.5
"""Share of the content words alone that must agree, of one or two all: a few numbers cannot stand in for them."""
BESIDE_FORMULA = 2
"""Content words that may differ beside a formula."""
WORN_SHARE, WORN_COUNT, WORN_WEIGHT = 0.01, 30, 0.25
"""A word in so large a share of the questions, and in so many, counts as so much of a word."""


def worn(sketches: Sequence[Sketch]) -> frozenset[str]:
    """Content words that so many questions have (`WORN_SHARE`) that they tell little: those of a template, "number"."""
    counts = Counter(word for sketch in sketches for word in sketch.wording.content)
    least = max(WORN_COUNT, WORN_SHARE * len(sketches))
    return frozenset(word for word, count in counts.items() if count >= least)


class _Entry(NamedTuple):
    known: Known
    wording: Wording
    choices: frozenset[str]


class Rewordings:
    """Questions seen so far; `find` says which of them, if any, a problem rewords. `worn` words weigh less."""

    def __init__(self, worn: frozenset[str] = frozenset()) -> None:
        self._worn = worn
        self._entries: list[_Entry] = []
        self._buckets = Buckets()

    def add(self, known: Known, sketch: Sketch) -> None:
        """Remember a question."""
        self._buckets.add(sketch.probes, len(self._entries))
        self._entries.append(_Entry(known, sketch.wording, sketch.choices))

    def find(self, sketch: Sketch) -> Match | None:
        """The question that this one rewords most lightly, if any; contamination goes before duplicates."""
        entries = [self._entries[place] for place in self._buckets.find(sketch.probes)]
        scored = [(entry.known, self._similarity(sketch, entry)) for entry in entries]
        return best_of("reworded", [pair for pair in scored if pair[1] >= SAME])

    def _similarity(self, sketch: Sketch, entry: _Entry) -> float:
        """Share of fixed tokens and content words that agree; 0 where something forbids that they are one question."""
        (fixed, content), (its_fixed, its_content) = sketch.wording, entry.wording
        if fixed != its_fixed or not _same_choices(sketch.choices, entry.choices):
            return 0.0
        size = max(self._weight(content), self._weight(its_content))
        shared = self._weight(content & its_content)
        if not size + len(fixed):
            return 0.0
        few = max(len(content), len(its_content)) <= 2
        agree = content == its_content if few else shared >= SAME_CONTENT * size
        if not agree and not (is_formula(fixed) and size - shared <= BESIDE_FORMULA):
            return 0.0
        return (shared + len(fixed)) / (size + len(fixed))

    def _weight(self, words: frozenset[str]) -> float:
        return len(words) - (1 - WORN_WEIGHT) * len(words & self._worn)


def _same_choices(choices: frozenset[str], other: frozenset[str]) -> bool:
    """Whether at least half are shared; a question asked without choices fits any."""
    return not choices or not other or 2 * len(choices & other) >= max(len(choices), len(other))
