"""Baseline: five calls of the best worker; each after the first reflects on the earlier answers."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow

CALLS = 5
REFLECT = "Reflect on the answer so far: check it step by step, and give the complete corrected answer."


@workflow_baseline(
    "5 × reflection",
    position=40,
    calls_per_question=lambda workers: CALLS,
    source="arXiv:2512.04388, Section 4.1; arXiv:2303.17651 (Self-Refine)",
    differences="The Conductor's paper only names the method. In Podium, one call both criticises and corrects "
    "the answer, "
    "for which Self-Refine makes two calls. Each call sees all earlier answers, and no call may end the method early.",
)
def five_reflection(training_data: TrainingData) -> Method:
    """The worker that is best on the training questions solves the question and then improves its answer four times."""
    best = training_data.best_worker
    steps = (Step(best, SOLVE_SUBTASK), *[Step(best, REFLECT, "all")] * (CALLS - 1))
    return Method.static(Workflow(steps), training_data.team.names[best])
