"""Without subtasks, as served: the policy wrote some, and nobody is told."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ops.evaluation.experiment import Arm, Habits, intervention
from ops.workflow.grammar import SOLVE, Workflow


def unworded(workflow: Workflow, dice: Random) -> Workflow:
    """Every worker is told only to solve the problem; workers and access stay."""
    return workflow.without_subtasks()


@intervention(
    "Subtasks that nobody is told",
    20,
    changes=f"every worker is told “{SOLVE}” instead of its subtask; the policy was trained with subtasks",
)
def without_subtasks_served(habits: Habits) -> Sequence[Arm]:
    return [Arm(f"all told “{SOLVE}”", unworded)]
