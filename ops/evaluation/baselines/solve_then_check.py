"""Baseline: the best worker solves and then checks its own answer, the cheapest workflow with two steps."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, make_checked_workflow


@workflow_baseline(
    "solve, then check",
    position=46,
    calls_per_question=lambda workers: 2,
    source="arXiv:2303.17651 (Self-Refine)",
    differences="One round, in which one call both criticises and corrects. Not among the baselines of "
    "arXiv:2512.04388.",
)
def solve_then_check(training_data: TrainingData) -> Method:
    """Let the best single worker by the training mix solve the question and check the answer."""
    return Method.static(
        make_checked_workflow(training_data.best_worker, training_data.best_worker),
        training_data.team.names[training_data.best_worker],
    )
