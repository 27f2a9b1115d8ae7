"""Checks on the data and on the policy that GRPO starts from.

Each check runs when its stage is materialized and blocks later stages; the guards of training runs only warn. A check
of a partitioned asset covers every materialized partition, because a run can have many and later stages read all of
them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import dagster as dg

from assets import metadata
from assets.adaptive_conductor import adaptive_conductor, get_adaptive_run_folder
from assets.base_policy import base_policy
from assets.conductor import conductor, explain_no_training, get_run_folder, has_training_stage
from assets.last_result import UNCHANGED, is_rebuild_requested
from assets.raw_problems import raw_problems
from assets.recursive_conductor import get_final_run_folder, recursive_conductor
from assets.resources import RunResource
from assets.shortlist import shortlist
from assets.training_mix import training_mix
from assets.worker_responses import worker_responses
from ops.config import Recipe
from ops.grading import find_available_isolation
from ops.stages.checks import check_once
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.validation import assess_cold_start
from ops.training.guards import GUARDS, GuardFinding, check_run_guards

RECURSION_GUARD = "recursion_loops"
"""The guard that reads only the recursive stage."""


@dg.asset_check(asset=raw_problems, blocking=True)
def well_formed(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Great Expectations checks the columns, unique ids and numbers of the questions, and that the graders can read the
    gold answers."""
    return _check_data(context, podium, "well_formed")


@dg.asset_check(asset=raw_problems, blocking=True)
def gold_scores_one(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """The graders should accept every gold answer, written as a worker would write it. Only few rows may have been left
    out because of their gold answers. Programs are checked later."""
    return _check_data(context, podium, "gold_scores_one")


@dg.asset_check(asset=raw_problems)
def evaluation_programs_pass(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """The reference programs of the test questions should pass their tests on this machine. A failure is only a
    warning, because some programs need further libraries."""
    return _check_data(context, podium, "evaluation_programs_pass", dg.AssetCheckSeverity.WARN)


@dg.asset_check(asset=shortlist, blocking=True)
def fit_to_ask_about(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Great Expectations checks that there are enough candidates in each domain, that they are well formed, and that
    none resembles another one or a test question."""
    return _check_data(context, podium, "fit_to_ask_about")


@dg.asset_check(asset=shortlist, blocking=True, name="gold_answers_score_one")
def shortlist_gold(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Every gold answer, including programs, should be graded as right before a worker is paid to answer."""
    return _check_data(context, podium, "shortlist_gold")


@dg.asset_check(asset=worker_responses, blocking=True)
def whole_and_in_range(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Great Expectations checks that every candidate has a row for each answer, and that tokens, prices and times are
    plausible."""
    return _check_data(context, podium, "whole_and_in_range")


@dg.asset_check(asset=training_mix, blocking=True)
def fit_to_train_on(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Great Expectations checks the columns of the training questions, the balance of the domains, and that none
    resembles another one or a test question."""
    return _check_data(context, podium, "fit_to_train_on")


@dg.asset_check(asset=training_mix, blocking=True)
def gold_answers_score_one(context: dg.AssetCheckExecutionContext, podium: RunResource) -> dg.AssetCheckResult:
    """Every gold answer, written as a worker would write it, should be graded as right."""
    return _check_data(context, podium, "training_mix_gold")


@dg.asset_check(asset=base_policy, blocking=True)
def writes_workflows(podium: RunResource) -> dg.AssetCheckResult:
    """After the cold start, enough completions for questions without training examples should be valid workflows. This
    is checked if the recipe sets `cold_start.validation`."""
    setup = podium.load_setup()
    found = assess_cold_start(base_policy_folder(setup), setup.recipe.cold_start)
    facts = metadata.describe_validity(found.validity) if found.validity else {}
    return dg.AssetCheckResult(passed=found.passed, description=found.said, metadata=facts)


def _make_guard_checks(
    name: str,
    asset: dg.AssetsDefinition,
    run: Callable[[RunResource], Path],
    section: Literal["", "adaptive", "recursive"] = "",
    *more: str,
) -> dg.AssetChecksDefinition:
    """Make the guards of a run and `more` checks of its asset; they pass if the recipe lacks that `section`."""
    watched = {guard: GUARDS[guard] for guard in GUARDS if guard != RECURSION_GUARD or guard in more}

    @dg.multi_asset_check(
        name=name,
        specs=[
            dg.AssetCheckSpec(guard, asset=asset, description=f"{about.about}. If it warns: {about.remedy}.")
            for guard, about in watched.items()
        ],
    )
    def check(podium: RunResource) -> Iterator[dg.AssetCheckResult]:
        absent = f"The recipe has no `{section}` section: there is no such run."
        if why_not := explain_no_training(podium) or (
            absent if section and not has_training_stage(podium, section) else ""
        ):
            for guard in watched:
                yield dg.AssetCheckResult(
                    asset_key=asset.key, check_name=guard, passed=True, severity=dg.AssetCheckSeverity.WARN,
                    description=why_not,
                )  # fmt: skip
            return
        for finding in check_run_guards(podium.load_setup(), run(podium)):
            if finding.guard in watched:
                yield _guard_result(finding, asset)

    return check


guards = _make_guard_checks("guards", conductor, get_run_folder)
adaptive_guards = _make_guard_checks("adaptive_guards", adaptive_conductor, get_adaptive_run_folder, "adaptive")
recursive_guards = _make_guard_checks(
    "recursive_guards", recursive_conductor, get_final_run_folder, "recursive", RECURSION_GUARD
)


def _guard_result(finding: GuardFinding, asset: dg.AssetsDefinition) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset.key,
        check_name=finding.guard,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=str(finding),
        metadata={"saw": finding.finding, "threshold": finding.threshold, "what_to_do": finding.remedy},
    )


def _list_recorded_benchmarks(context: dg.AssetCheckExecutionContext, recipe: Recipe) -> list[str]:
    """Return the recipe's benchmarks for which Dagster has a materialization; their files must exist."""
    keys = context.instance.get_materialized_partitions(raw_problems.key)
    return [name for name in recipe.benchmarks if name in keys]


def _check_data(
    context: dg.AssetCheckExecutionContext,
    podium: RunResource,
    name: str,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """Return the result of a check of `ops.stages.checks`; the last one if it passed on the same files."""
    setup = podium.load_setup()
    report, is_new = check_once(
        setup, name, _list_recorded_benchmarks(context, setup.recipe), force=is_rebuild_requested(context)
    )
    facts: dict[str, dg.MetadataValue] = {
        "checked": dg.MetadataValue.int(report.checked),
        "skipped": dg.MetadataValue.int(report.skipped),
        "set_aside": dg.MetadataValue.int(report.set_aside),
        "failures": dg.MetadataValue.json(report.failures),
        "sandbox": dg.MetadataValue.text(find_available_isolation()),
    }
    if not is_new:
        facts[UNCHANGED] = dg.MetadataValue.text("since it passed on the same files")
    if report.page is not None:
        facts["data_docs"] = dg.MetadataValue.path(report.page)
    return dg.AssetCheckResult(
        passed=report.success,
        severity=severity,
        description=report.summary,
        metadata=facts,
    )
