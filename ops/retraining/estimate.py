"""Estimate what a change of the pool, or a round of drift detection, will cost before any call is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ops.benchmarks.problem_files import group_by_benchmark
from ops.benchmarks.registry import training_benchmarks
from ops.config import Setup, Snapshot, load_retraining
from ops.core.errors import DataError
from ops.planning.estimate import Cost, PlannedCall, Range, add_costs
from ops.planning.estimate import estimate_calls as price_asks
from ops.planning.forecast import measure_run
from ops.planning.lengths import count_test_questions, estimate_lengths, read_shortlist
from ops.planning.stage_estimates import StageEstimator
from ops.planning.stored_results import (
    RemainingShares,
    compute_remaining,
    find_unscored,
    read_measurements,
    remaining_share_of_run,
)
from ops.precaching.precache import build_solo_messages
from ops.precaching.stored_profiles import WorkerBenchmark
from ops.retraining.drift import find_stored_champion, list_stored_workers, sample_of_day
from ops.retraining.fine_tuning_start import apply_fine_tune_settings, find_fine_tuning
from ops.retraining.retraining_plan import NEVER, RetrainingPlan
from ops.retraining.standing import find_unanswered_benchmarks, load_training_decision
from ops.spending.bookings import format_usd
from ops.stages.responses import estimate_responses, measure_prices
from ops.training.run.training_run import RunPlan, RunResult
from ops.workers.client import WorkerClient


@dataclass(frozen=True)
class Estimate:
    """The estimated costs of the parts of a plan, in their order."""

    parts: tuple[Cost, ...] = ()

    @property
    def usd(self) -> Range:
        """The total in USD, including training."""
        return add_costs(self.parts).usd

    @property
    def seconds(self) -> Range:
        """The total time of the parts that is spent waiting for workers, training and generating."""
        total = add_costs(self.parts)
        return total.worker_s if total.policy_s is None else total.worker_s.plus(total.policy_s)

    def __str__(self) -> str:
        """One line for a run's tag."""
        if not self.parts:
            return "nothing to pay: no worker is asked"
        listed = ", ".join(
            f"{part.name} {format_usd(part.usd.expected)}{' if needed' * part.is_conditional}" for part in self.parts
        )
        return f"about {format_usd(self.usd.expected)}, at most {format_usd(self.usd.high)} ({listed})"


def estimate_plan(
    setup: Setup, plan: RetrainingPlan, client: WorkerClient, snapshot: Snapshot | None = None
) -> Estimate:
    """Estimate what the plan costs beyond results that are already stored. No call is made. Raises `DataError` and
    `ConfigError`.

    `snapshot` is the snapshot of the change, by which stored scores, decisions and trainings are found; None if nothing
    is stored.
    """
    if not plan.evaluate:
        return Estimate()
    stored, parts = _find_stored_results(setup, snapshot), []
    if plan.precache:
        cells = [
            WorkerBenchmark(name, each)
            for name in plan.precache
            for each in training_benchmarks(setup.recipe.benchmarks)
        ]
        column = estimate_responses(setup, client, cells)
        parts.append(replace(column, calls_formula=f"{column.paid_calls:,} answers to the shortlist"))
    if find_unanswered_benchmarks(setup):
        parts.append(estimate_stages(setup, compute_remaining(setup, read_shortlist(setup))).estimate_baselines())
    once = estimate_stages(setup, RemainingShares(evaluation=stored.standing)).estimate_evaluation(policies=1)
    parts.append(replace(once, usd=once.usd._replace(low=0.0)))
    if plan.fine_tune != NEVER and not stored.holds:
        tuned = replace(setup, recipe=apply_fine_tune_settings(setup.recipe))
        share = stored.training
        training = estimate_stages(
            tuned, RemainingShares(training=share, adaptive=share, recursive=share)
        ).estimate_last_training()
        again = estimate_stages(setup, RemainingShares(evaluation=stored.tuned)).estimate_evaluation(policies=1)
        policy_s = training.policy_s or _estimate_policy_s(setup, snapshot, share * tuned.recipe.grpo.steps)
        parts.append(replace(training, name="fine-tuning", policy_s=policy_s, is_conditional=True))
        parts.append(replace(again, name="its evaluation", usd=again.usd._replace(low=0.0), is_conditional=True))
    return Estimate(tuple(parts))


def _estimate_policy_s(setup: Setup, snapshot: Snapshot | None, steps: float) -> Range | None:
    """Return the seconds that the policy needs for `steps` steps, from the champion's own training.

    None if the champion was not trained in this checkout.
    """
    if snapshot is None or snapshot.change is None:
        return None
    folder = setup.workspace.runs / snapshot.change.policy
    try:
        trained = RunResult.read(folder)
        if trained is None or not trained.steps:
            return None
        return Range.exactly(measure_run(folder).policy_s / trained.steps * steps)
    except DataError:
        return None


class _StoredResults(NamedTuple):
    """Stored results of a pool change; shares (0-1) state the remaining work."""

    standing: Mapping[str, float] = MappingProxyType({})
    """Benchmark → remaining share of the champion's evaluation on the current pool."""
    holds: bool = False
    """Whether the stored decision is not to train."""
    training: float = 1.0
    tuned: Mapping[str, float] = MappingProxyType({})
    """Benchmark → remaining share of the fine-tuned policy's evaluation."""


def _find_stored_results(setup: Setup, snapshot: Snapshot | None) -> _StoredResults:
    if snapshot is None or snapshot.change is None:
        return _StoredResults()
    runs = setup.workspace.runs
    standing = _remaining_shares(setup, runs / snapshot.change.policy)
    try:
        made = load_training_decision(setup.workspace, snapshot.key)
    except DataError:  # not judged yet
        return _StoredResults(standing)
    if not made.fine_tune:
        return _StoredResults(standing, holds=True)
    run = find_fine_tuning(setup, snapshot.change)
    if run is None:
        return _StoredResults(standing)
    share = remaining_share_of_run(run, RunPlan.read(run).recipe.grpo.steps)
    return _StoredResults(standing, training=share, tuned=_remaining_shares(setup, run))


def _remaining_shares(setup: Setup, run: Path) -> dict[str, float]:
    """Benchmark → remaining share of the evaluation of the policy in a run's folder."""
    missing = find_unscored(setup, run / "policy")
    return {name: float(name in missing) for name in setup.recipe.benchmarks}


def estimate_drift(setup: Setup, client: WorkerClient, day: date) -> Estimate:
    """Estimate the cost of asking the questions of the day. No call is made. Raises `DataError` and `ConfigError`."""
    count, seed = load_retraining(setup.workspace.config).drift.questions, setup.recipe.seed
    asks = [
        PlannedCall(system.worker, problem.benchmark, build_solo_messages(problem), sample_of_day(day), problem.grader)
        for system in list_stored_workers(setup)
        for problem in system.choose_questions(seed, count, day)
        if system.worker is not None
    ]
    cost = price_asks(asks, client.cache, measure_prices(setup, client.ledger), "workers")
    parts = [replace(cost, calls_formula=f"{cost.paid_calls:,} answers")]
    if (system := find_stored_champion(setup)) is not None:
        tonight = {
            name: len(own) for name, own in group_by_benchmark(system.choose_questions(seed, count, day)).items()
        }
        parts.append(
            replace(estimate_stages(setup, question_counts=tonight).estimate_nightly_evaluation(), name="champion")
        )
    return Estimate(tuple(parts))


def estimate_stages(
    setup: Setup, stored: RemainingShares | None = None, question_counts: Mapping[str, int | None] | None = None
) -> StageEstimator:
    """Return the stages of the recipe with prices from measurements.

    `question_counts` is the number of questions of each benchmark, if not the whole evaluation is meant. Raises
    `ConfigError` for a worker without a price.
    """
    rows, measured = read_measurements(setup)
    asked = count_test_questions(setup.workspace, setup.recipe) if question_counts is None else question_counts
    return StageEstimator(setup, estimate_lengths(setup, rows), asked, measured, stored)
