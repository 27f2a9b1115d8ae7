"""Decontamination: no training candidate may repeat an evaluation question or another candidate.

If a benchmark's rule (`Benchmark.upstream`) derives the upstream item from an id, copies of one item are repetitions;
otherwise texts are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import Problem
from ops.curation.duplicates import Cause, Match, NearDuplicateIndex, RewordingIndex, SeenQuestion, find_frequent_words
from ops.curation.question_features import Sketch, Sketcher


def find_upstream_item(problem: Problem) -> str | None:
    """Return `DATASET:ITEM`, which is equal for every copy of one upstream item; None if the id does not identify
    it."""
    entry = BENCHMARKS.get(problem.benchmark)
    rule = entry.upstream if entry else None
    match = rule.pattern.match(problem.id.strip().casefold()) if rule else None
    return f"{rule.dataset}:{match[1]}" if rule and match else None


@dataclass(frozen=True)
class RemovedCandidate:
    """A removed candidate: the question that it repeats, the kind of repetition, and the similarity (0 to 1).

    `cause` is "contamination" (it repeats an evaluation question) or "duplicate" (another candidate). `kind` is "id"
    (the same upstream item), "exact" (the same text except for case, spacing and punctuation), "near" (word 5-grams;
    `similarity` is their Jaccard similarity) or "reworded" (the same numbers and formulas; `similarity` is the share of
    these and of the content words that agree).
    """

    problem: str
    other: str
    cause: str
    kind: str
    similarity: float


class DecontaminationResult(NamedTuple):
    """The candidates that were kept, in the given order, and those that were removed."""

    kept: list[Problem]
    removed: list[RemovedCandidate]


class SeenQuestions:
    """An index of the questions seen so far, by every kind of repetition.

    With a threshold of 1 only equal texts count, and rewordings are not searched for.
    """

    def __init__(self, threshold: float, frequent_words: frozenset[str] = frozenset()) -> None:
        self._items: dict[str, SeenQuestion] = {}
        self._texts = NearDuplicateIndex(threshold)
        self._rewordings = RewordingIndex(frequent_words) if threshold < 1 else None

    def add(self, problem: Problem, sketch: Sketch, cause: Cause) -> None:
        """Add a question; `cause` is the reason for which a later repetition of it is removed."""
        known = SeenQuestion(problem.key, cause)
        if item := find_upstream_item(problem):
            self._items.setdefault(item, known)
        self._texts.add(known, sketch)
        if self._rewordings:
            self._rewordings.add(known, sketch)

    def find(self, problem: Problem, sketch: Sketch) -> Match | None:
        """Return the question that `problem` repeats, if there is one.

        The kinds of repetition are tried from the most to the least reliable: id, text, long passages, wording.
        """
        if (item := find_upstream_item(problem)) in self._items:
            return Match(self._items[item], "id", 1.0)
        match = self._texts.find(sketch)
        return match or (self._rewordings.find(sketch) if self._rewordings else None)


def decontaminate(
    candidates: Sequence[Problem], evaluation: Iterable[Problem], threshold: float = 0.8
) -> DecontaminationResult:
    """Remove candidates that repeat an evaluation question or an earlier candidate.

    The same upstream item is "id"; the same text except for case, spacing and punctuation, or the same long question
    with other choices, is "exact"; word 5-grams with a Jaccard similarity of at least `threshold` are "near"; a light
    rewording is "reworded" (not searched for at a threshold of 1). The time is linear in the number of texts as long as
    few of them are similar. The candidates' names define which one is earlier, so that their order does not change the
    result.
    """
    sketcher, held_out = Sketcher(threshold), list(evaluation)
    sketches = [sketcher.sketch(problem) for problem in held_out]
    seen = SeenQuestions(threshold, find_frequent_words(sketches))
    for problem, sketch in zip(held_out, sketches, strict=True):
        seen.add(problem, sketch, "contamination")
    dropped: dict[str, RemovedCandidate] = {}
    for problem in sorted(candidates, key=lambda problem: problem.key):
        name, sketch = problem.key, sketcher.sketch(problem)
        if match := seen.find(problem, sketch):
            dropped[name] = RemovedCandidate(
                name, match.other.reference, match.other.cause, match.kind, match.similarity
            )
        else:
            seen.add(problem, sketch, "duplicate")
    kept = [problem for problem in candidates if problem.key not in dropped]
    return DecontaminationResult(kept, [dropped[name] for problem in candidates if (name := problem.key) in dropped])


def find_leaks(mix: Sequence[Problem], evaluation: Iterable[Problem], threshold: float = 0.8) -> list[RemovedCandidate]:
    """Return the problems of `mix` that repeat an evaluation question; empty for a clean mix.

    Similar problems within the mix are not reported.
    """
    repeats = decontaminate(mix, evaluation, threshold).removed
    return [item for item in repeats if item.cause == "contamination"]


def build_contamination_report(
    clean: DecontaminationResult, candidates: int, evaluation: int, threshold: float
) -> dict[str, Any]:
    """Return the removals as numbers and pairs for JSON: the contents of `data/contamination.json`."""
    counts = Counter((item.problem.partition("/")[0], item.cause, item.kind) for item in clean.removed)
    return {
        "threshold": threshold,
        "candidates": candidates,
        "evaluation_questions": evaluation,
        "kept": len(clean.kept),
        "removed": [
            {"benchmark": benchmark, "cause": cause, "kind": kind, "count": count}
            for (benchmark, cause, kind), count in sorted(counts.items())
        ],
        "pairs": [asdict(item) for item in clean.removed],
    }
