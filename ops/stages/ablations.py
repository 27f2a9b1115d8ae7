"""A recipe with one thing changed: trained and scored once, and found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.conductor.policy import CARD
from ops.config import Setup
from ops.config.ablations import Change, changed
from ops.core.errors import DataError
from ops.evaluation.ablations import Outcome, findings
from ops.evaluation.experiment import Findings
from ops.evaluation.rows import ScoreRow
from ops.evaluation.stored import COLD_START, CONDUCTOR, stored_scores
from ops.stages.evaluation import score_policy
from ops.stages.experiments import asked
from ops.stages.making import Making, trained
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.plan import RunResult, write_run


def with_change(setup: Setup, change: Change, file: Path, trainings: int) -> Setup:
    """The setup with a change of `file` made. To the ledger all `trainings` of a seed are one run, the recipe's own
    among them: its cap is that of so many. Raises `ConfigError` where that leaves no recipe."""
    recipe = changed(setup.recipe, change, file)
    budget = recipe.budget.model_copy(update={"run_usd": trainings * recipe.budget.run_usd})
    return replace(setup, recipe=recipe.model_copy(update={"budget": budget}))


def is_trained(setup: Setup, deepspeed: Mapping[str, Any] | None) -> bool:
    """Whether a training run of these settings has finished."""
    if not (setup.workspace.data / "training_mix.jsonl").is_file():
        return False
    base = base_policy_folder(setup)
    return (base / CARD).is_file() and RunResult.read(write_run(setup, base, deepspeed)) is not None


def outcome(setup: Setup, deepspeed: Mapping[str, Any] | None, making: Making | None = None) -> Outcome:
    """What a training of these settings came to: its cold start and its Conductor on every question.

    Without `making` what is stored. Raises `DataError` where that is not everything, and as trainings and evaluations
    do.
    """
    folder = trained(setup, deepspeed, making)
    result = RunResult.read(folder)
    assert result is not None  # it has ended well
    cold = _scored(setup, base_policy_folder(setup), COLD_START, making)
    return Outcome(cold, _scored(setup, folder / "policy", CONDUCTOR, making), result.seconds)


def beside_the_recipe(
    as_it_is: Setup, other: Setup, name: str, deepspeed: Mapping[str, Any] | None, making: Making | None = None
) -> Findings:
    """What the change of that name, which `other` has, did beside the recipe as it is, which was trained before.

    Raises as `outcome` does.
    """
    if not is_trained(as_it_is, deepspeed):
        problem = f"holds no finished training of recipe {as_it_is.recipe.name!r} as it is"
        raise DataError(as_it_is.workspace.runs, "(folder)", problem, f"`podium run {as_it_is.recipe.name}` first")
    base = outcome(as_it_is, deepspeed, making)
    return findings(base, outcome(other, deepspeed, making), name)


def _scored(setup: Setup, policy: Path, name: str, making: Making | None) -> Sequence[ScoreRow]:
    """The policy on every question, as the recipe evaluates; what could not be reached is asked again."""
    benchmarks = list(asked(setup))
    try:
        rows = stored_scores(setup, policy, name, benchmarks)
        if making is None or not any(row.unscorable for row in rows):
            return rows
    except DataError:
        if making is None:
            raise
    quiet = setup.recipe.execution.model_copy(update={"traces": 0})  # those of the recipe as it is are kept
    own = replace(setup, recipe=setup.recipe.model_copy(update={"execution": quiet}))
    client = making.client(own, "experiment")
    return [row for rows in score_policy(own, policy, name, client, benchmarks, making.tell).values() for row in rows]
