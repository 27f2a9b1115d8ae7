"""The modes of collaboration that MasRouter chooses among, as workflows of at most five steps with open roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow

Mode = Literal["single", "chain", "vote", "debate"]
MODES: tuple[Mode, ...] = ("single", "chain", "vote", "debate")
MOST_STEPS = 5
CHECK, VOTE, PLAN = "Check the answer.", "Take the most common answer.", "Write a plan."
ROLES = (SOLVE_SUBTASK, CHECK, VOTE, PLAN)
"""The instructions that an agent may receive, in words that any worker understands."""


class AgentRole(NamedTuple):
    """A seat in a workflow: the roles that it allows, and whether its worker sees all earlier responses."""

    roles: tuple[str, ...]
    sees_all: bool = False
    same_as: int | None = None
    """The index of an earlier seat whose worker also takes this one."""


OPENING = AgentRole((SOLVE_SUBTASK, PLAN))
ALONE = AgentRole((SOLVE_SUBTASK,))
REFLECTION = AgentRole((SOLVE_SUBTASK, CHECK), sees_all=True)
JUDGE = AgentRole((VOTE, CHECK), sees_all=True)
REPLIES = tuple(AgentRole((CHECK, SOLVE_SUBTASK), sees_all=True, same_as=seat) for seat in (0, 1))


def sizes(mode: Mode, most: int = MOST_STEPS) -> dict[int, tuple[AgentRole, ...]]:
    """Return number of steps → the seats of the mode; empty if the mode needs more than `most` steps.

    In a chain each agent continues the earlier work. In a vote a judge decides between independent answers. In a debate
    two agents answer and reply to each other, with an optional judge.
    """
    made: dict[int, tuple[AgentRole, ...]]
    if mode == "single":
        made = {1: (ALONE,)}
    elif mode == "chain":
        made = {steps: (OPENING, *(REFLECTION,) * (steps - 1)) for steps in range(2, MOST_STEPS + 1)}
    elif mode == "vote":
        made = {steps: (*(ALONE,) * (steps - 1), JUDGE) for steps in range(3, MOST_STEPS + 1)}
    else:
        made = {4: (ALONE, ALONE, *REPLIES), 5: (ALONE, ALONE, *REPLIES, JUDGE)}
    return {steps: seats for steps, seats in made.items() if steps <= most}


def workflow(seats: Sequence[AgentRole], roles: Sequence[str], workers: Sequence[int]) -> Workflow:
    """Make the workflow with these roles and workers in the seats."""
    taken = zip(seats, roles, workers, strict=True)
    return Workflow(tuple(Step(worker, role, "all" if seat.sees_all else "none") for seat, role, worker in taken))
