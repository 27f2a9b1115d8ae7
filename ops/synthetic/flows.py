"""The fixed workflows of the synthetic pool, which do not depend on the question and name their workers."""

from __future__ import annotations

import itertools
from typing import Literal, NamedTuple

from ops.core.registry import StaticStep
from ops.synthetic.generalists import SKILLS
from ops.synthetic.tools import TOOLS

Kind = Literal["alone", "tools", "vote", "check", "plan"]
"""The kind of a fixed workflow."""
KINDS: dict[Kind, str] = {
    "alone": "a worker alone",
    "tools": "tools in a chain",
    "vote": "a vote",
    "check": "solve, then check",
    "plan": "a plan or a fact, then solve",
}
SOLVE, CHECK, VOTE = "Solve the problem.", "Check the answer.", "Take the most common answer."
STRONGEST = "solver"
_ATTRIBUTES = (
    "density", "melting point", "molar mass", "population", "symbol", "capital", "currency", "language", "country",
)  # fmt: skip
_FORMULA, _PLAN, _REST = (("analyst", text) for text in ("Write it as a formula.", "Write a plan.", "Read the rest."))
_COMPUTE, _PROGRAM = ("algebraist", "Compute the result."), ("programmer", "Write the program.")
_LETTER = ("editor", "Choose the letter.")


class FixedWorkflow(NamedTuple):
    """A workflow of the fixed set."""

    kind: Kind
    """The kind of the workflow."""
    steps: tuple[StaticStep, ...]
    """The steps in their order."""

    @property
    def name(self) -> str:
        """Return the steps in one line.

        `→` precedes a step that sees all earlier ones, and `+` a step that sees none.
        """
        parts: list[str] = []
        for step, group in itertools.groupby(self.steps):
            sign = "" if not parts else (" → " if step.sees_all else " + ")
            count = len(list(group))
            said = "" if step.subtask == SOLVE else f" “{step.subtask}”"
            parts.append(f"{sign}{f'{count} × ' if count > 1 else ''}{step.worker}{said}")
        return "".join(parts)


def build_chain(kind: Kind, *steps: tuple[str, str]) -> FixedWorkflow:
    """Return a workflow in which each step sees all earlier ones. A step is a pair of worker and subtask."""
    return FixedWorkflow(
        kind, tuple(StaticStep(worker, subtask, index > 0) for index, (worker, subtask) in enumerate(steps))
    )


def build_vote(kind: Kind, *workers: str, judge: tuple[str, str] = ("editor", VOTE)) -> FixedWorkflow:
    """Return a workflow in which every worker answers alone and a last step, `judge`, sees all answers."""
    return FixedWorkflow(kind, (*(StaticStep(worker, SOLVE, False) for worker in workers), StaticStep(*judge, True)))


def look_up_step(attribute: str) -> tuple[str, str]:
    """Return the worker and the subtask that look up an attribute."""
    return ("librarian", f"Look up the {attribute}.")


def fixed_workflows() -> list[FixedWorkflow]:
    """Return the fixed set, which contains workflows of up to five steps for every approach to every family."""
    solve, strong = (STRONGEST, "Compute the result."), (STRONGEST, SOLVE)
    made = [build_chain("alone", (worker, SOLVE)) for worker in (*TOOLS, *SKILLS)]
    commands = ("zeros", "derivative", "minimum", "integral")
    made += [build_chain("tools", ("algebraist", f"Find the {command}.")) for command in commands]
    made.append(build_chain("tools", ("editor", "Convert the units.")))
    for attribute in _ATTRIBUTES:
        made.append(build_chain("tools", look_up_step(attribute)))
        made.append(build_chain("plan", look_up_step(attribute), solve))
    sides = [("editor", f"Pick the {side}.") for side in ("largest", "smallest")]
    made += [build_chain("tools", look_up_step(attribute), pick) for attribute in _ATTRIBUTES[:4] for pick in sides]
    made += [
        build_chain("tools", look_up_step("country"), look_up_step(attribute)) for attribute in ("currency", "language")
    ]
    for opening in ((), *((look_up_step(attribute),) for attribute in _ATTRIBUTES[:3])):
        made.append(build_chain("tools", *opening, _FORMULA, _COMPUTE))
        made.append(build_chain("tools", *opening, _FORMULA, _COMPUTE, _LETTER))
        made.append(build_chain("tools", *opening, _FORMULA, _PROGRAM))
    made.append(build_chain("tools", _FORMULA, _REST, _COMPUTE))
    made.append(build_chain("tools", _PLAN, _PROGRAM))
    made.append(build_chain("tools", _PLAN, _REST, _PROGRAM))
    made += [build_vote("vote", *[name] * 4) for name in SKILLS]
    made.append(build_vote("vote", STRONGEST, *reversed(SKILLS)))
    made.append(build_mixture())
    for name, checks in itertools.product(SKILLS, (1, 4)):
        made.append(build_chain("check", (name, SOLVE), *[(STRONGEST, CHECK)] * checks))
    made.append(build_chain("check", ("apprentice", SOLVE), *[("apprentice", CHECK)] * 4))
    made.append(build_chain("plan", _PLAN, solve))
    made.append(build_chain("plan", _PLAN, _REST, solve))
    made.append(build_chain("plan", _FORMULA, solve))
    made.append(build_chain("plan", ("scholar", SOLVE), strong))
    return made


def build_mixture() -> FixedWorkflow:
    """Return a workflow in which every generalist proposes an answer and the strongest one aggregates them.

    This is Mixture-of-Agents with one layer (arXiv:2406.04692).
    """
    return build_vote("vote", *SKILLS, judge=(STRONGEST, CHECK))
