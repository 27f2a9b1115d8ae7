"""Majority votes over samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ops.evaluation.method import Attempt, Method
from ops.grading.answer_clusters import answer_clusters
from ops.workflow.grammar import Workflow

VOTERS = 5


def majority(attempts: Sequence[Attempt]) -> list[int]:
    """Return for each question the first branch with the most frequent answer; ties go to the answer given first.

    A branch without an answer does not vote. If no branch has an answer, the first branch is chosen and counts as
    wrong.
    """
    return [_elected(attempt) for attempt in attempts]


def _elected(attempt: Attempt) -> int:
    groups = answer_clusters(attempt.problem, attempt.answers)
    return max(groups, key=len)[0] if groups else 0


def voted(worker: int, detail: str = "", voters: int = VOTERS) -> Method:
    """Make a method that votes over several samples of one worker."""
    return Method.samples(Workflow.single(worker), voters, majority, detail)


def beside(workers: Sequence[int], names: Sequence[str] = ()) -> Method:
    """Make a method that votes over one answer of each worker; ties go to the worker named first. `names`: by ordinal,
    to name the voters in the heading."""
    method = Method.beside(tuple(Workflow.single(worker) for worker in workers), majority)
    return replace(method, detail=" + ".join(names[worker] for worker in workers)) if names else method
