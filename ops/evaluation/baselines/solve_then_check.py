"""Baseline: the best worker solves and then checks its own answer, the cheapest workflow with two steps."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, make_checked_workflow


@workflow_baseline(
    "solve, then check",
    position=46,
    calls_per_question=lambda workers: 2,
    source="arXiv:2303.17651 (Self-Refine)",
    differences="There is one round, in which one call both criticises and corrects the answer. The Conductor's paper "
    "does not have this baseline.",
)
def solve_then_check(training_data: TrainingData) -> Method:
    """The worker that is best on the training questions solves the question and then checks its answer."""
    best = training_data.best_worker
    return Method.static(make_checked_workflow(best, best), training_data.team.names[best])
