"""Train and score variants of a recipe, with one change each, on the same data and beside registered baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ops.config import Setup, digest
from ops.config.studies import STUDIES, UNCHANGED, Change, Changes, apply_change
from ops.core.errors import ConfigError, DataError, suggest_name
from ops.evaluation.arms import MINUS_CONDUCTOR, Arm, format_arm_name
from ops.evaluation.baseline import BASELINES
from ops.evaluation.comparison import list_row_sources
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, read_policy_scores
from ops.evaluation.stored_studies import StudyInputs
from ops.results.summary import count_unscorable
from ops.results.table import Rows, concatenate_rows
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.responses import answer_evaluation_questions
from ops.stages.study_context import StudyContext, find_finished_run, train_policy
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import RunResult, read_curve

STEPS_PER_END = 20
"""The number of steps at each end of a training over which the seconds per step are averaged."""
STEP_PARTS = {
    "": "seconds",
    " writing": "seconds/generation",
    " workers": "seconds/workers",
    " update": "seconds/update",
}
"""Suffix of a column → the field of the training curve with the seconds of that part of a step."""


def make_changed_setups(
    name: str, entry: Changes, setup: Setup, selected_changes: Sequence[str] = ()
) -> dict[str, Setup]:
    """Return name of a change → the setup with this change; the unchanged setup is listed as `UNCHANGED`.

    `selected_changes` selects some of the study's changes; empty selects all. The ledger counts the study's calls on a
    seed as a run of its own, which does not use the budget of the recipe's own run. The study's cap is the recipe's cap
    × (1 + the number of changes, at least 1). Raises `ConfigError` for an unknown change, and for a change that makes
    the recipe invalid.
    """
    file = setup.workspace.config / STUDIES
    if unknown := [each for each in selected_changes if each not in entry.changes]:
        remedy = suggest_name(unknown[0], entry.changes, "changes there")
        raise ConfigError(file, f"studies.{name}.changes", f"has no {unknown[0]!r}", remedy)
    usd = (1 + max(1, len(entry.changes))) * setup.recipe.budget.run_usd

    def with_change(change: Change) -> Setup:
        recipe = apply_change(setup.recipe, change, file)
        budget = recipe.budget.model_copy(update={"run_usd": usd})
        return replace(setup.with_account(name), recipe=recipe.model_copy(update={"budget": budget}))

    chosen = {UNCHANGED: Change(), **{each: entry.changes[each] for each in selected_changes or entry.changes}}
    return {each: with_change(change) for each, change in chosen.items()}


def make_arms(
    name: str, entry: Changes, inputs: StudyInputs, context: StudyContext, selected_changes: Sequence[str] = ()
) -> list[Arm]:
    """Make the arms: cold start and Conductor of the unchanged recipe and of each change, then the baselines."""
    made: list[Arm] = []
    for change, setup in make_changed_setups(name, entry, inputs.setup, selected_changes).items():
        as_it_is = change == UNCHANGED
        run = find_finished_run(inputs, "conductor") if as_it_is else train_policy(setup, inputs.deepspeed, context)
        result = RunResult.read(run)
        assert result is not None  # the run has finished
        facts: dict[str, float | str] = {
            "reward before": result.reward_before, "reward after": result.reward_after, "s of GRPO": result.seconds,
        }  # fmt: skip
        if not entry.changes:
            facts |= _mean_step_seconds(run)
        if not as_it_is and run == find_finished_run(inputs, "conductor"):  # the same training
            facts = {}
        for temperature in entry.temperatures:
            labels = [
                format_arm_name(each, "" if as_it_is else change, temperature) for each in ("Conductor", "cold start")
            ]
            bases = [format_arm_name(each, "", temperature) for each in ("Conductor", "cold start")]
            other = [{} if as_it_is else {f"minus {UNCHANGED}": base} for base in bases]
            conductor = _score_or_read(setup, inputs, run / "policy", CONDUCTOR, temperature, context)
            made.append(Arm(labels[0], [conductor], {"minus cold start": labels[1]} | other[0], facts))
            facts = {}  # state the facts once
            cold = _score_or_read(setup, inputs, base_policy_folder(setup), COLD_START, temperature, context)
            made.append(Arm(labels[1], [cold], other[1]))
    if entry.baselines:
        made += _make_baseline_arms(name, entry, inputs, context, made[0].name)
    return made


def _mean_step_seconds(run: Path) -> dict[str, float | str]:
    """Return the mean seconds of a GRPO step and of its parts, for the first and the last steps of the training."""
    curve = read_curve(run)
    ends = {f"first {STEPS_PER_END}": curve[:STEPS_PER_END], f"last {STEPS_PER_END}": curve[-STEPS_PER_END:]}
    return {
        f"s a step, {end}{part}": f"{fmean(row[name] for row in rows):.2f}"
        for end, rows in ends.items()
        for part, name in STEP_PARTS.items()
    }


def _score_or_read(
    setup: Setup, lab: StudyInputs, policy: Path, name: str, temperature: float, making: StudyContext
) -> Rows:
    """Return the policy's rows on every question; stored rows are scored again if any of them is unscorable.

    Scores with other settings than those of the study's recipe are stored in files of their own.
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
    client = making.open_client(own, "experiment")
    scores = score_policy(own, policy, name, client, benchmarks, making.report)
    return concatenate_rows(scores.values())


def _make_baseline_arms(name: str, entry: Changes, lab: StudyInputs, making: StudyContext, conductor: str) -> list[Arm]:
    """Make the arms of the study's baselines and of the single workers that these need, on the same questions."""
    setup = make_changed_setups(name, entry, lab.setup)[UNCHANGED]
    change = {"evaluation": {"baselines": list(entry.baselines)}}
    setup = replace(setup, recipe=apply_change(setup.recipe, change, setup.workspace.config / STUDIES))
    benchmarks = list(lab.questions)
    client = making.open_client(setup, "baselines")
    answer_evaluation_questions(setup, client, benchmarks)
    score_baselines(setup, client, benchmarks, making.report)
    title = {entry.name: entry.title for entry in BASELINES.values()}
    return [
        Arm(title.get(system, f"{system}, alone"), [rows], {MINUS_CONDUCTOR: conductor})
        for source, read in list_row_sources(setup, lab.policy_after("conductor"), None).items()
        if source != CONDUCTOR
        for system, rows in read().items()
    ]
