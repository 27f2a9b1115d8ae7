"""Baseline: five calls of the best worker, each with all earlier answers as context."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow

CALLS = 5


@asking(
    "5 × context",
    place=42,
    calls=lambda workers: CALLS,
    source="arXiv:2512.04388, Section 4.1",
    differs="The paper only names the method. In Podium, each call solves the question again and sees the earlier "
    "answers.",
)
def five_context(known: Known) -> Method:
    """The worker that is best on the training questions solves the question five times and sees its earlier answers."""
    steps = (Step(known.best, SOLVE_SUBTASK), *[Step(known.best, SOLVE_SUBTASK, "all")] * (CALLS - 1))
    return Method.static(Workflow(steps), known.team.names[known.best])
