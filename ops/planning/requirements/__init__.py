"""Find a recipe's requirements that the machine, the pool or a file does not meet, with a remedy for each.

There is one module per part of a pipeline run; a new requirement is a function in its module's `REQUIREMENTS`.
`check_ready` refuses to start a pipeline run, before it spends anything, while a requirement is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.machine import this_machine
from ops.planning.recipe_plan import Missing, Plan, Requirement, make_plan
from ops.planning.requirements import data, evaluation, training, workers

Need = Literal["data", "workers", "training", "evaluation"]
"""A part of a pipeline run."""
ALL_NEEDS: tuple[Need, ...] = ("data", "workers", "training", "evaluation")
_REQUIREMENTS: dict[Need, tuple[Requirement, ...]] = {
    "data": data.REQUIREMENTS,
    "workers": workers.REQUIREMENTS,
    "training": training.REQUIREMENTS,
    "evaluation": evaluation.REQUIREMENTS,
}


class NotReady(PodiumError):
    """Requirements are missing; the message lists all of them with remedies."""


def missing(plan: Plan, needs: Iterable[Need] = ALL_NEEDS) -> list[Missing]:
    """All missing requirements of these parts of a pipeline run: those that prevent a start first, then by part. An
    untrained policy needs nothing for training."""
    wanted = set(needs) if plan.recipe.trains else set(needs) - {"training"}
    asked = (requirement for need in ALL_NEEDS if need in wanted for requirement in _REQUIREMENTS[need])
    found = dict.fromkeys(each for requirement in asked for each in requirement(plan))
    return sorted(found, key=lambda each: not each.refuses)


def verdict(found: Iterable[Missing]) -> str:
    """`ready` or a numbered list of missing requirements, followed by notes that do not prevent a start."""
    every = list(found)
    refused = [each for each in every if each.refuses]
    noted = [_item("  -", each) for each in every if not each.refuses]
    listed = [_item(f"{number:>2}.", each) for number, each in enumerate(refused, 1)]
    head = ["not ready; missing:", *listed] if refused else ["ready"]
    return "\n".join([*head, *(["worth knowing:", *noted] if noted else [])])


def _item(mark: str, each: Missing) -> str:
    return f"{mark} {each.what}: {each.why}\n    → {each.remedy}"


def check_ready(setup: Setup, needs: Iterable[Need] = ALL_NEEDS, deepspeed: Mapping[str, Any] | None = None) -> None:
    """Raise `NotReady` with all requirements of these parts of a pipeline run that this machine lacks. Makes no call.

    `deepspeed`: the run's copy of the recipe's DeepSpeed file, if there is one. A rehearsal needs no API key.
    """
    plan = make_plan(setup, this_machine(setup.workspace), deepspeed)
    refused = [each for each in missing(plan, needs) if each.refuses]
    if refused:
        more = f"`podium plan {setup.recipe.name}` shows the whole plan; nothing was spent"
        raise NotReady(f"recipe {setup.recipe.name!r} is {verdict(refused)}\n{more}")
