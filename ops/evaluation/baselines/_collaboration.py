"""The modes of collaboration that MasRouter chooses among, as workflows of at most five steps with open roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow

Mode = Literal["single", "chain", "vote", "debate"]
MODES: tuple[Mode, ...] = ("single", "chain", "vote", "debate")
MAX_STEPS = 5
CHECK, VOTE, PLAN = "Check the answer.", "Take the most common answer.", "Write a plan."
ROLES = (SOLVE_SUBTASK, CHECK, VOTE, PLAN)
"""The instructions that an agent may receive, in words that any worker understands."""


class AgentRole(NamedTuple):
    """A position of an agent in a workflow: the roles that it may take, and whether it sees all earlier responses."""

    roles: tuple[str, ...]
    sees_all: bool = False
    same_worker_as: int | None = None
    """The index of an earlier position whose worker also takes this one."""


OPENING = AgentRole((SOLVE_SUBTASK, PLAN))
SOLO = AgentRole((SOLVE_SUBTASK,))
REFLECTION = AgentRole((SOLVE_SUBTASK, CHECK), sees_all=True)
AGGREGATOR = AgentRole((VOTE, CHECK), sees_all=True)
REPLIES = tuple(AgentRole((CHECK, SOLVE_SUBTASK), sees_all=True, same_worker_as=position) for position in (0, 1))


def list_mode_sizes(mode: Mode, max_steps: int = MAX_STEPS) -> dict[int, tuple[AgentRole, ...]]:
    """Return number of steps → the positions of the mode's agents; empty if the mode needs more than `max_steps` steps.

    In a chain each agent continues the earlier work. In a vote an aggregator decides between independent answers. In a
    debate two agents answer and reply to each other, with an optional aggregator.
    """
    made: dict[int, tuple[AgentRole, ...]]
    if mode == "single":
        made = {1: (SOLO,)}
    elif mode == "chain":
        made = {steps: (OPENING, *(REFLECTION,) * (steps - 1)) for steps in range(2, MAX_STEPS + 1)}
    elif mode == "vote":
        made = {steps: (*(SOLO,) * (steps - 1), AGGREGATOR) for steps in range(3, MAX_STEPS + 1)}
    else:
        made = {4: (SOLO, SOLO, *REPLIES), 5: (SOLO, SOLO, *REPLIES, AGGREGATOR)}
    return {steps: positions for steps, positions in made.items() if steps <= max_steps}


def build_workflow(positions: Sequence[AgentRole], roles: Sequence[str], workers: Sequence[int]) -> Workflow:
    """Return the workflow with these roles and workers in the positions."""
    taken = zip(positions, roles, workers, strict=True)
    return Workflow(
        tuple(Step(worker, role, "all" if position.sees_all else "none") for position, role, worker in taken)
    )
