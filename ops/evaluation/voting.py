"""Samples that vote: the answer that most of them give."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.method import Attempt, Method
from ops.grading.answer_clusters import answer_clusters
from ops.workflow.grammar import Workflow

VOTERS = 5


def majority(attempts: Sequence[Attempt]) -> list[int]:
    """The earliest branch of the answer that most branches give; of answers with as many, the one given first.

    A branch without an answer does not vote; where none votes the first one counts, and is wrong.
    """
    return [_elected(attempt) for attempt in attempts]


def _elected(attempt: Attempt) -> int:
    groups = answer_clusters(attempt.problem, attempt.answers)
    return max(groups, key=len)[0] if groups else 0


def voted(worker: int, detail: str = "", voters: int = VOTERS) -> Method:
    """A vote over several samples of one worker."""
    return Method.samples(Workflow.single(worker), voters, majority, detail)
