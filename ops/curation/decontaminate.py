"""Decontamination: no training candidate may repeat an evaluation question, and none another candidate.

What belongs here: removal and its report. What does not: similarity itself
(`text`, `duplicates`) and choosing among what is kept (`shortlist`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ops.curation.duplicates import NearDuplicates, reference, sketches
from ops.problem import Problem


@dataclass(frozen=True)
class Removed:
    """One candidate that was taken out: what it repeats, how ("exact" or "near") and how alike they are.

    `cause` is "contamination" (it repeats an evaluation question) or "duplicate" (another candidate).
    """

    problem: str
    other: str
    cause: str
    kind: str
    jaccard: float


class Clean(NamedTuple):
    """What is kept, in the order given, and what was removed."""

    kept: list[Problem]
    removed: list[Removed]


def decontaminate(candidates: Sequence[Problem], evaluation: Iterable[Problem], threshold: float = 0.8) -> Clean:
    """Drop candidates that repeat an evaluation question or an earlier candidate.

    The same text in another case or spacing, or the same question above other choices, is "exact"; word
    5-grams with a Jaccard similarity of at least `threshold` are "near". Linear in the number of texts
    as long as few of them are alike.
    """
    evaluated, seen = NearDuplicates(threshold), NearDuplicates(threshold)
    held_out = list(evaluation)
    for problem, sketch in zip(held_out, sketches(held_out), strict=True):
        evaluated.add(problem, sketch)
    kept: list[Problem] = []
    removed: list[Removed] = []
    for problem, sketch in zip(candidates, sketches(candidates), strict=True):
        if match := evaluated.find(sketch):
            removed.append(Removed(reference(problem), match.other, "contamination", match.kind, match.jaccard))
        elif match := seen.find(sketch):
            removed.append(Removed(reference(problem), match.other, "duplicate", match.kind, match.jaccard))
        else:
            seen.add(problem, sketch)
            kept.append(problem)
    return Clean(kept, removed)


def report(clean: Clean, candidates: int, evaluation: int, threshold: float) -> dict[str, Any]:
    """The removal as JSON-ready numbers and pairs: the contents of `data/contamination.json`."""
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
