"""Mechanism isolation: the choice of workers, the wording or the access no longer depends on the question.

The mechanism is fixed to the policy's most frequent value, or drawn at each step with the policy's own frequencies; the
other two are unchanged. The loss then measures the worth of choosing by the question, not the effect of unfamiliar
workflows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from ops.evaluation.studies.one_worker import assign_all_steps
from ops.evaluation.study import RewriteWorkflow, WorkflowChange, WorkflowStatistics, intervention
from ops.workflow.grammar import Access, Workflow

Item = TypeVar("Item", int, str)


def draw_by_frequency(counts: Counter[Item], dice: Random) -> Item:
    """Draw an item with a probability proportional to its count."""
    items = sorted(counts)
    return dice.choices(items, [counts[item] for item in items])[0]


def find_most_frequent(counts: Counter[Item]) -> Item:
    """Return the item with the largest count; of equal counts, the first in sorted order."""
    return min(counts, key=lambda item: (-counts[item], item))


def redraw_workers(counts: Counter[int]) -> RewriteWorkflow:
    """Return a change that draws the worker of each step; wording and access are unchanged."""

    def change(workflow: Workflow, dice: Random) -> Workflow:
        return Workflow(tuple(replace(step, worker=draw_by_frequency(counts, dice)) for step in workflow.steps))

    return change


def redraw_subtasks(counts: Counter[str]) -> RewriteWorkflow:
    """Return a change that draws the subtask of each step; workers and access are unchanged."""

    def change(workflow: Workflow, dice: Random) -> Workflow:
        return Workflow(tuple(replace(step, subtask=draw_by_frequency(counts, dice)) for step in workflow.steps))

    return change


def fix_subtask(subtask: str) -> RewriteWorkflow:
    """Return a change that gives every step the same subtask; workers and access are unchanged."""

    def change(workflow: Workflow, dice: Random) -> Workflow:
        return Workflow(tuple(replace(step, subtask=subtask) for step in workflow.steps))

    return change


def fix_access(access: Access) -> RewriteWorkflow:
    """Return a change that gives every step after the first the same access; workers and wording are unchanged."""

    def change(workflow: Workflow, dice: Random) -> Workflow:
        first, *others = workflow.steps
        return Workflow((replace(first, access="none"), *(replace(step, access=access) for step in others)))

    return change


@intervention(
    "One mechanism frozen at a time",
    30,
    about="workers, wording or access no longer depend on the question: the policy's commonest, or drawn as often as "
    "the policy uses them; the other two stay as it wrote them",
)
def mechanism_isolation(statistics: WorkflowStatistics) -> Sequence[WorkflowChange]:
    """Return two arms each for workers, wording and access; without workflows, return none."""
    if not statistics.workers:
        return []
    worker, wording = find_most_frequent(statistics.workers), find_most_frequent(statistics.subtasks)
    return [
        WorkflowChange(f"workers: always {statistics.names[worker]}, the commonest", assign_all_steps(worker)),
        WorkflowChange("workers: drawn", redraw_workers(statistics.workers)),
        WorkflowChange(f"wording: always “{wording}”, the commonest", fix_subtask(wording)),
        WorkflowChange("wording: drawn", redraw_subtasks(statistics.subtasks)),
        WorkflowChange("access: no step sees an earlier one", fix_access("none")),
        WorkflowChange("access: every step sees all earlier ones", fix_access("all")),
    ]
