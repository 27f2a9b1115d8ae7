"""Changed completions of a policy: its workflows after an intervention, to be executed in place of the originals.

The completions that were stored at scoring are changed; the policy generates no text again.
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
    """One completion of the policy, with its problem and repeat."""

    problem: Problem
    repeat: int
    text: str


class Changed(NamedTuple):
    """The completions of an arm, in the order of the policy's completions."""

    written: list[Written]
    share: float
    """The share of the policy's workflows that the arm changed, in [0, 1]."""


def workflows(written: Sequence[Written], team: Team) -> list[Workflow]:
    """Return the well-formed workflows of these completions."""
    read = (team.read(each.text).workflow for each in written)
    return [workflow for workflow in read if workflow is not None]


def changed(written: Sequence[Written], arm: WorkflowChange, team: Team, seed: int) -> Changed:
    """Apply an arm's change to these completions; invalid completions stay unchanged as format failures.

    Each question has its own random numbers, so that its draws do not depend on other questions. Raises `ValueError` if
    the arm turns a workflow into an invalid one.
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
            raise ValueError(f"arm {arm.name!r} turned {workflow.render()!r} into an invalid workflow ({failure})")
        valid, others = valid + 1, others + (other != workflow)
        made.append(each._replace(text=text))
    return Changed(made, others / valid if valid else 0.0)
