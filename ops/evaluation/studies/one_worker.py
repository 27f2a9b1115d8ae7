"""All steps to one worker: this measures what the choice among workers adds to workflows for a single worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ops.evaluation.study import RewriteWorkflow, WorkflowChange, WorkflowStatistics, intervention
from ops.workflow.grammar import Workflow


def assign_all_steps(worker: int) -> RewriteWorkflow:
    """Return a change that assigns every step to the worker with this ordinal; wording and access are unchanged."""

    def change(workflow: Workflow, dice: Random) -> Workflow:
        return Workflow(tuple(replace(step, worker=worker) for step in workflow.steps))

    return change


@intervention(
    "All steps to one worker",
    10,
    about="every step is given to one worker, each in turn; steps, subtasks and access stay as the policy wrote them",
)
def one_worker(statistics: WorkflowStatistics) -> Sequence[WorkflowChange]:
    """Return one arm per worker; the best single worker is marked in the name of its arm."""
    best = {statistics.best_worker: " (the best alone, by the mix)"}
    return [
        WorkflowChange(f"all to {name}{best.get(ordinal, '')}", assign_all_steps(ordinal))
        for ordinal, name in enumerate(statistics.names)
    ]
