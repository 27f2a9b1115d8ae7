"""Find the requirements of a recipe that this machine, the pool or a file does not meet, with a remedy for each.

There is one module per part of a pipeline run, and a new requirement is a function in its module's `REQUIREMENTS`.
`check_ready` refuses to start a pipeline run, before it spends anything, while a requirement is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.machine import detect_machine
from ops.planning.recipe_plan import MissingRequirement, RecipePlan, Requirement, make_plan
from ops.planning.requirements import data, evaluation, training, workers

RunPart = Literal["data", "workers", "training", "evaluation"]
"""A part of a pipeline run that has requirements of its own."""
ALL_PARTS: tuple[RunPart, ...] = ("data", "workers", "training", "evaluation")
"""All parts, in the order in which their requirements are reported."""
_REQUIREMENTS: dict[RunPart, tuple[Requirement, ...]] = {
    "data": data.REQUIREMENTS,
    "workers": workers.REQUIREMENTS,
    "training": training.REQUIREMENTS,
    "evaluation": evaluation.REQUIREMENTS,
}


class NotReady(PodiumError):
    """Raised if requirements are missing; the message lists all of them with remedies."""


def find_missing(plan: RecipePlan, parts: Iterable[RunPart] = ALL_PARTS) -> list[MissingRequirement]:
    """Return all missing requirements of these parts of a pipeline run.

    Those that prevent a start come first, and each kind is ordered by part. A policy that is not trained has no
    requirements for training.
    """
    wanted = set(parts) if plan.recipe.is_trained else set(parts) - {"training"}
    asked = (requirement for need in ALL_PARTS if need in wanted for requirement in _REQUIREMENTS[need])
    found = dict.fromkeys(each for requirement in asked for each in requirement(plan))
    return sorted(found, key=lambda each: not each.refuses)


def format_missing(found: Iterable[MissingRequirement]) -> str:
    """Return `ready`, or a numbered list of missing requirements, followed by notes that do not prevent a start."""
    every = list(found)
    refused = [each for each in every if each.refuses]
    noted = [_format_item("  -", each) for each in every if not each.refuses]
    listed = [_format_item(f"{number:>2}.", each) for number, each in enumerate(refused, 1)]
    head = ["not ready; missing:", *listed] if refused else ["ready"]
    return "\n".join([*head, *(["worth knowing:", *noted] if noted else [])])


def _format_item(mark: str, each: MissingRequirement) -> str:
    return f"{mark} {each.what}: {each.why}\n    → {each.remedy}"


def check_ready(setup: Setup, parts: Iterable[RunPart] = ALL_PARTS, deepspeed: Mapping[str, Any] | None = None) -> None:
    """Raise `NotReady` with all requirements of these parts of a pipeline run that are missing. No calls are made.

    `deepspeed` is the run's copy of the recipe's DeepSpeed file, if there is one. A rehearsal needs no API key.
    """
    plan = make_plan(setup, detect_machine(setup.workspace), deepspeed)
    refused = [each for each in find_missing(plan, parts) if each.refuses]
    if refused:
        more = f"`podium plan {setup.recipe.name}` shows the whole plan; nothing was spent"
        raise NotReady(f"recipe {setup.recipe.name!r} is {format_missing(refused)}\n{more}")
