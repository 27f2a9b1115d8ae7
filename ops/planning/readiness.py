"""The refusal: a pipeline run spends nothing before its recipe is ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.machine import this_machine
from ops.planning.plan import make_plan
from ops.planning.requirements import WHOLE_LIFE, Need, missing
from ops.planning.text import verdict


class NotReady(PodiumError):
    """Something is missing: the message lists all of it, with remedies."""


def check_ready(setup: Setup, needs: Iterable[Need] = WHOLE_LIFE, deepspeed: Mapping[str, Any] | None = None) -> None:
    """Raise `NotReady` with everything that these parts of a pipeline run lack on this machine. No call is made.

    `deepspeed`: what the recipe's file says, where the run has a copy of it. A rehearsal needs no key.
    """
    plan = make_plan(setup, this_machine(setup.workspace), deepspeed)
    refused = [each for each in missing(plan, needs) if each.refuses]
    if refused:
        more = f"`podium plan {setup.recipe.name}` shows the whole plan; nothing was spent"
        raise NotReady(f"recipe {setup.recipe.name!r} is {verdict(refused)}\n{more}")
