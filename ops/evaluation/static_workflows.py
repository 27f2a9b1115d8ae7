"""Fixed workflows for any question and any pool."""

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
"""The largest number of proposers in a mixture: the size of the paper's pool."""


def checked(solver: int, checker: int) -> Workflow:
    """Make a workflow in which one worker solves and one checks."""
    return Workflow((Step(solver, SOLVE), Step(checker, CHECK, "all")))


def chained(workers: Sequence[int]) -> Workflow:
    """Make a workflow in which the first worker solves, and each other worker continues from all earlier responses."""
    first, *others = workers
    return Workflow((Step(first, SOLVE), *(Step(worker, GO_ON, "all") for worker in others)))


def mixture(proposers: Sequence[int], aggregator: int) -> Workflow:
    """Make a one-layer Mixture-of-Agents (arXiv:2406.04692): independent proposers, then an aggregator."""
    return Workflow((*(Step(worker, SOLVE) for worker in proposers), Step(aggregator, AGGREGATE, "all")))
