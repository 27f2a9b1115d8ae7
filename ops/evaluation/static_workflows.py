"""Shapes of workflows that make sense for any question and any pool."""

from __future__ import annotations

from collections.abc import Sequence

from ops.workflow.grammar import SOLVE, Step, Workflow

CHECK = "Check the answer."
GO_ON = "Go on from the work so far, check it, and give the complete answer."
AGGREGATE = (
    "Check the proposed answers against each other and give, complete and in the form asked for, the answer that is "
    "most likely right."
)
PROPOSERS = 7
"""Of a mixture, at most: the size of the paper's pool."""


def checked(solver: int, checker: int) -> Workflow:
    """One worker solves, one checks."""
    return Workflow((Step(solver, SOLVE), Step(checker, CHECK, "all")))


def chained(workers: Sequence[int]) -> Workflow:
    """The first worker solves, each of the others goes on from all before it."""
    first, *others = workers
    return Workflow((Step(first, SOLVE), *(Step(worker, GO_ON, "all") for worker in others)))


def mixture(proposers: Sequence[int], aggregator: int) -> Workflow:
    """Each proposer alone, then an aggregator who sees all their answers (arXiv:2406.04692, in one layer)."""
    return Workflow((*(Step(worker, SOLVE) for worker in proposers), Step(aggregator, AGGREGATE, "all")))
