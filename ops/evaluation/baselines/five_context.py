"""Baseline: five calls of the best worker, each with all earlier answers as context."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow

CALLS = 5


@workflow_baseline(
    "5 × context",
    position=42,
    calls_per_question=lambda workers: CALLS,
    source="arXiv:2512.04388, Section 4.1",
    differences="The paper only names the method. In Podium, each call solves the question again and sees the earlier "
    "answers.",
)
def five_context(training_data: TrainingData) -> Method:
    """The worker that is best on the training questions solves the question five times and sees its earlier answers."""
    best = training_data.best_worker
    steps = (Step(best, SOLVE_SUBTASK), *[Step(best, SOLVE_SUBTASK, "all")] * (CALLS - 1))
    return Method.static(Workflow(steps), training_data.team.names[best])
