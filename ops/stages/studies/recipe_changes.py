"""Train and score variants of a recipe with one change each on the same data, beside registered baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ops.config import Setup, digest
from ops.config.studies import AS_IT_IS, STUDIES, Change, Changes, changed
from ops.core.errors import ConfigError, DataError
from ops.evaluation.arms import MINUS_CONDUCTOR, Arm, format_arm_name
from ops.evaluation.baseline import BASELINES
from ops.evaluation.comparison import list_row_sources
from ops.evaluation.stored import COLD_START, CONDUCTOR, read_policy_scores
from ops.evaluation.stored_studies import StudyInputs
from ops.results.summary import count_unscorable
from ops.results.table import Rows, joined
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.making import Making, finished, trained
from ops.stages.responses import answer_evaluation
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import RunResult, read_curve

ENDS = 20
"""Number of steps at each end of a training over which the seconds per step are averaged."""
PARTS = {"": "seconds", " writing": "seconds/generation", " workers": "seconds/workers", " update": "seconds/update"}


def setups(name: str, entry: Changes, setup: Setup, only: Sequence[str] = ()) -> dict[str, Setup]:
    """`AS_IT_IS` and each change (those in `only`, if it is not empty) → the changed setup.

    The ledger counts the calls of the study on a seed as a run of its own, which the recipe's own run does not pay. Its
    cap is the recipe's cap × (1 + number of changes, at least 1). Raises `ConfigError` for an unknown change, and for a
    change that makes the recipe invalid.
    """
    file = setup.workspace.config / STUDIES
    if unknown := [each for each in only if each not in entry.changes]:
        remedy = f"Changes there: {'; '.join(entry.changes) or 'none'}"
        raise ConfigError(file, f"studies.{name}.changes", f"has no {unknown[0]!r}", remedy)
    usd = (1 + max(1, len(entry.changes))) * setup.recipe.budget.run_usd

    def with_change(change: Change) -> Setup:
        recipe = changed(setup.recipe, change, file)
        budget = recipe.budget.model_copy(update={"run_usd": usd})
        return replace(setup.beside(name), recipe=recipe.model_copy(update={"budget": budget}))

    chosen = {AS_IT_IS: Change(), **{each: entry.changes[each] for each in only or entry.changes}}
    return {each: with_change(change) for each, change in chosen.items()}


def arms(name: str, entry: Changes, lab: StudyInputs, making: Making, only: Sequence[str] = ()) -> list[Arm]:
    """Make the arms: cold start and Conductor of the unchanged recipe and of each change, then the baselines."""
    made: list[Arm] = []
    for change, setup in setups(name, entry, lab.setup, only).items():
        as_it_is = change == AS_IT_IS
        run = finished(lab, "conductor") if as_it_is else trained(setup, lab.deepspeed, making)
        result = RunResult.read(run)
        assert result is not None  # the run has finished
        facts: dict[str, float | str] = {
            "reward before": result.reward_before, "reward after": result.reward_after, "s of GRPO": result.seconds,
        }  # fmt: skip
        if not entry.changes:
            facts |= _seconds(run)
        if not as_it_is and run == finished(lab, "conductor"):  # the same training
            facts = {}
        for temperature in entry.temperatures:
            labels = [format_arm_name(each, "" if as_it_is else change, temperature) for each in ("Conductor", "cold start")]
            bases = [format_arm_name(each, "", temperature) for each in ("Conductor", "cold start")]
            other = [{} if as_it_is else {f"minus {AS_IT_IS}": base} for base in bases]
            conductor = _scored(setup, lab, run / "policy", CONDUCTOR, temperature, making)
            made.append(Arm(labels[0], [conductor], {"minus cold start": labels[1]} | other[0], facts))
            facts = {}  # state the facts once
            cold = _scored(setup, lab, base_policy_folder(setup), COLD_START, temperature, making)
            made.append(Arm(labels[1], [cold], other[1]))
    if entry.baselines:
        made += _baselines(name, entry, lab, making, made[0].name)
    return made


def _seconds(run: Path) -> dict[str, float | str]:
    """Mean seconds per GRPO step and its parts, at each end of the training."""
    curve = read_curve(run)
    ends = {f"first {ENDS}": curve[:ENDS], f"last {ENDS}": curve[-ENDS:]}
    return {
        f"s a step, {end}{part}": f"{fmean(row[name] for row in rows):.2f}"
        for end, rows in ends.items()
        for part, name in PARTS.items()
    }


def _scored(
    setup: Setup, lab: StudyInputs, policy: Path, name: str, temperature: float, making: Making
) -> Rows:
    """The policy's rows on every question, scored again if any stored row is unscorable.

    Scores of other settings than those of the lab's recipe are stored in files of their own.
    """
    evaluation = setup.recipe.evaluation.model_copy(update={"temperature": temperature})
    execution = setup.recipe.execution
    given = lab.setup.recipe.evaluation.model_dump()
    if others := {key: value for key, value in evaluation.model_dump().items() if value != given[key]}:
        name = f"{name}_{digest(others)}"
    update = {"evaluation": evaluation, "execution": execution.model_copy(update={"traces": 0})}
    own = replace(setup, recipe=setup.recipe.model_copy(update=update))
    benchmarks = list(lab.questions)
    try:
        rows = read_policy_scores(own, policy, name, benchmarks)
        if not count_unscorable(rows):
            return rows
    except DataError:  # no stored scores, or scores of other settings
        pass
    client = making.client(own, "experiment")
    scores = score_policy(own, policy, name, client, benchmarks, making.report)
    return joined(scores.values())


def _baselines(name: str, entry: Changes, lab: StudyInputs, making: Making, conductor: str) -> list[Arm]:
    """Make the arms of the study's baselines and of the solo workers that they need, on the same questions."""
    setup = setups(name, entry, lab.setup)[AS_IT_IS]
    change = {"evaluation": {"baselines": list(entry.baselines)}}
    setup = replace(setup, recipe=changed(setup.recipe, change, setup.workspace.config / STUDIES))
    benchmarks = list(lab.questions)
    client = making.client(setup, "baselines")
    answer_evaluation(setup, client, benchmarks)
    score_baselines(setup, client, benchmarks, making.report)
    title = {entry.name: entry.title for entry in BASELINES.values()}
    return [
        Arm(title.get(system, f"{system}, alone"), [rows], {MINUS_CONDUCTOR: conductor})
        for source, read in list_row_sources(setup, lab.policy_after("conductor"), None).items()
        if source != CONDUCTOR
        for system, rows in read().items()
    ]
