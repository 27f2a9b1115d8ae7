"""Generate the problems of the synthetic benchmarks from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random

from ops.core.problem import Domain, GraderName, Problem, Split
from ops.synthetic.families import FAMILIES, Family, ProblemDraft

_KINDS: dict[str, tuple[Domain, GraderName]] = {
    "math500": ("math", "math"),
    "mmlu": ("mmlu", "choice"),
    "rlpr": ("rlpr", "text"),
    "livecodebench": ("code", "code"),
    "aime25": ("math", "math"),
    "gpqa_diamond": ("mmlu", "choice"),
    "bigcodebench": ("code", "code"),
}
TEST_SHARE = 0.25
"""The share of questions that belong to the split "test"."""


def mirrored_benchmarks() -> frozenset[str]:
    """Return the names of the benchmarks that the synthetic families imitate."""
    return frozenset(_KINDS)


def generate_problems(benchmark: str, split: Split, count: int, seed: int) -> list[Problem]:
    """Return `count` distinct problems of a benchmark, which come from its families in turn.

    The text of a question decides its split, so that no question is in both splits for any seed. Raises `ValueError` if
    a family has no further distinct questions.
    """
    families = [family for family in FAMILIES if family.benchmark == benchmark]
    streams = [generate_drafts(family, split, seed) for family in families]
    domain, grader = _KINDS[benchmark]
    problems = []
    for index in range(count):
        family, draft = families[index % len(families)], next(streams[index % len(families)])
        problems.append(
            Problem(
                id=f"{benchmark}-{split}-{seed}-{index:05d}",
                benchmark=benchmark,
                domain=domain,
                split=split,
                question=draft.question,
                answer=draft.answer,
                grader=grader,
                choices=draft.choices,
                tests=draft.tests,
                subject=family.name,
                level="hard" if family.hard else "plain",
                family=family.name,
                source="embedded",
            )
        )
    return problems


def generate_drafts(family: Family, split: Split, seed: int) -> Iterator[ProblemDraft]:
    """Yield distinct drafts of one family and split, whose answers are confirmed by a second derivation.

    Raises `ValueError` if the two derivations disagree or if there are no further distinct questions.
    """
    random = Random(f"{family.name}:{split}:{seed}")
    seen: set[tuple[str, tuple[str, ...]]] = set()
    unseen_benchmark = family.benchmark in ("aime25", "gpqa_diamond", "bigcodebench")
    for _ in range(400_000):
        draft = family.make(random)
        first, second = draft.proof
        if first != second:
            raise ValueError(f"family {family.name}: two derivations disagree on {draft.question!r}: {draft.proof}")
        if not unseen_benchmark and choose_split(draft.question) != split:
            continue
        # The same choices in another order do not make another problem.
        key = (draft.question, tuple(sorted(draft.choices)))
        if key not in seen:
            seen.add(key)
            yield draft
    raise ValueError(f"family {family.name}: no further distinct question in split {split}; ask for fewer")


def choose_split(question: str) -> Split:
    """Return the split of a question, which a hash of its text decides."""
    value = int(hashlib.sha256(question.encode()).hexdigest()[:8], 16) / 16**8
    return "test" if value < TEST_SHARE else "train"
