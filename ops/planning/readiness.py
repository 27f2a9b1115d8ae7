"""Refuse to start a pipeline run, before it spends anything, until its recipe is ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.machine import this_machine
from ops.planning.plan import make_plan
from ops.planning.requirements import ALL_NEEDS, Need, missing
from ops.planning.text import verdict


class NotReady(PodiumError):
    """Requirements are missing; the message lists all of them with remedies."""


def check_ready(setup: Setup, needs: Iterable[Need] = ALL_NEEDS, deepspeed: Mapping[str, Any] | None = None) -> None:
    """Raise `NotReady` with all requirements of these parts of a pipeline run that this machine lacks. Makes no call.

    `deepspeed`: the run's copy of the recipe's DeepSpeed file, if there is one. A rehearsal needs no API key.
    """
    plan = make_plan(setup, this_machine(setup.workspace), deepspeed)
    refused = [each for each in missing(plan, needs) if each.refuses]
    if refused:
        more = f"`podium plan {setup.recipe.name}` shows the whole plan; nothing was spent"
        raise NotReady(f"recipe {setup.recipe.name!r} is {verdict(refused)}\n{more}")
