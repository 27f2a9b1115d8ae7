"""The completions of a policy with their workflows changed, to be executed as if the policy had written them so.

The policy writes nothing twice: what it wrote when it was scored is what is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ops.core.problem import Problem
from ops.evaluation.study import WorkflowChange
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team


class Written(NamedTuple):
    """One completion: the problem that it is for, at which repeat."""

    problem: Problem
    repeat: int
    text: str


class Changed(NamedTuple):
    """The completions of an arm, in the order of the policy's."""

    written: list[Written]
    share: float
    """Of the policy's workflows, those that were made others, in [0, 1]."""


def workflows(written: Sequence[Written], team: Team) -> list[Workflow]:
    """The well-formed ones."""
    read = (team.read(each.text).workflow for each in written)
    return [workflow for workflow in read if workflow is not None]


def changed(written: Sequence[Written], arm: WorkflowChange, team: Team, seed: int) -> Changed:
    """What the arm makes of these completions; one that is no workflow stays what it is, a format failure.

    Each question has dice of its own, so that what is drawn for it depends on no other. Raises `ValueError` for an arm
    that makes of a workflow what is none.
    """
    made, others, valid = [], 0, 0
    for each in written:
        workflow = team.read(each.text).workflow
        if workflow is None:
            made.append(each)
            continue
        dice = Random(f"{seed} {arm.name} {each.problem.key} {each.repeat}")
        other = arm.change(workflow, dice)
        text = other.render()
        if (failure := team.read(text).failure) is not None:
            raise ValueError(f"arm {arm.name!r} makes of {workflow.render()!r} what is no workflow ({failure})")
        valid, others = valid + 1, others + (other != workflow)
        made.append(each._replace(text=text))
    return Changed(made, others / valid if valid else 0.0)
