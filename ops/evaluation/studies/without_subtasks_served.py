"""Workers without subtasks: every worker receives “Solve the problem.” in place of the subtask in the workflow."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ops.evaluation.study import WorkflowChange, WorkflowStatistics, intervention
from ops.workflow.grammar import SOLVE_SUBTASK, Workflow


def remove_subtasks(workflow: Workflow, dice: Random) -> Workflow:
    """Replace every subtask by “Solve the problem.”; workers and access are unchanged."""
    return workflow.without_subtasks()


@intervention(
    "Workers without subtasks",
    20,
    about=f"every worker receives “{SOLVE_SUBTASK}” instead of its subtask; the policy was trained with subtasks",
)
def without_subtasks_served(statistics: WorkflowStatistics) -> Sequence[WorkflowChange]:
    """Return the arm that removes every subtask."""
    return [WorkflowChange(f"every subtask “{SOLVE_SUBTASK}”", remove_subtasks)]
