"""The collaborations that MasRouter chooses among, as workflows of at most five steps with roles to be given out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ops.workflow.grammar import SOLVE, Step, Workflow

Mode = Literal["single", "chain", "vote", "debate"]
MODES: tuple[Mode, ...] = ("single", "chain", "vote", "debate")
MOST_STEPS = 5
CHECK, VOTE, PLAN = "Check the answer.", "Take the most common answer.", "Write a plan."
ROLES = (SOLVE, CHECK, VOTE, PLAN)
"""The instructions of an agent, in words that any worker understands."""


class AgentRole(NamedTuple):
    """An agent that is still to be named: the roles that it may take, and whether it sees all before it."""

    roles: tuple[str, ...]
    sees_all: bool = False
    same_as: int | None = None
    """The seat whose worker speaks again."""


OPENING = AgentRole((SOLVE, PLAN))
ALONE = AgentRole((SOLVE,))
REFLECTION = AgentRole((SOLVE, CHECK), sees_all=True)
JUDGE = AgentRole((VOTE, CHECK), sees_all=True)
REPLIES = tuple(AgentRole((CHECK, SOLVE), sees_all=True, same_as=seat) for seat in (0, 1))


def sizes(mode: Mode, most: int = MOST_STEPS) -> dict[int, tuple[AgentRole, ...]]:
    """Steps → the seats of that mode; empty where it needs more steps than `most`.

    A chain hands on, a vote has a judge of independent answers, in a debate two answer, reply, and may be judged.
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
    """Everybody seated."""
    taken = zip(seats, roles, workers, strict=True)
    return Workflow(tuple(Step(worker, role, "all" if seat.sees_all else "none") for seat, role, worker in taken))
