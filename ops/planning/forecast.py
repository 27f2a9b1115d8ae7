"""Forecast the training signal, cost and duration of a training run before it starts.

The calls, USD and waiting times are those of the plan's training stage, with the same assumptions
(`ops.planning.stage_estimates`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import fsum
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import read_problems
from ops.config import Pool, Setup
from ops.core.errors import DataError, format_count
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.planning.estimate import Cost, MeasuredUsage, Range
from ops.planning.lengths import estimate_lengths, read_shortlist
from ops.planning.stage_estimates import StageEstimator
from ops.planning.stored_results import open_existing_ledger
from ops.precaching.profiles import map_subjects, tabulate_scores
from ops.results.statistics import Interval, estimate_choice_gain, estimate_hindsight_gain, expected_oracle_by_chance
from ops.spending.bookings import format_usd
from ops.training.run.training_run import RESULT_FILE, RunPlan, RunResult, read_curve
from ops.workers.pool import reprice_responses

FIRST_STEPS = 5
"""The number of initial steps of a run that are compared with the forecast. Later steps also reflect what was
learnt."""
MIN_SIGNAL = 0.1
"""The share (0-1) of groups with a gradient below which training learns little."""
MIN_GAIN = 0.05
"""The smallest gain in accuracy (0-1) for which training is worth its cost."""
CONFIDENCE = 0.95
"""The confidence of each end of a gain: the true gain is beyond the end with a probability of at most 1 -
`CONFIDENCE`."""
SHOWN_SHARE_OF_GAIN = 0.5
"""The assumed share of the attainable gain that is found by choosing workers by one other answer of each.

The share was 57 to 65 % on published outcomes of ten samples (LiveCodeBench, three models at a time), and about 35 % on
simulated workers whose skill differs by normal deviates. `make forecast` measures how often "would hardly pay" is false
for them.
"""


class Headroom(NamedTuple):
    """How far the stored answers lie above the best single worker, on the precached problems.

    Accuracies and shares are in [0, 1]. The gain that the right worker for each question would bring is larger than
    what a choice by other answers shows (`gain`), and smaller than what the best answer of each question reaches in
    hindsight (`hindsight`).
    """

    problems: int
    """The number of problems."""
    samples: int
    """The largest number of answers per problem that every worker gave."""
    workers: int
    """The number of workers that are compared."""
    best_worker: str
    """The name of the most accurate worker."""
    best_accuracy: float
    """The accuracy of the best worker, as the mean over benchmarks."""
    gain: Interval
    """The accuracy that choosing a worker for each question adds, judged on answers that took no part in the choice.
    With one sample the worker is chosen by subject and benchmark, because nothing else is known about a question's
    workers."""
    hindsight: Interval
    """The accuracy that the best answer of each question adds, including the part that is due to luck."""
    by_chance: float
    """The part of `hindsight` that luck gives to workers of these accuracies which find the same questions hard. It is
    NaN if there are several samples."""
    next_sample_usd: float
    """USD of one more answer of every worker to these problems, at the pool's prices."""

    @property
    def max_gain(self) -> float:
        """Return the upper end of the attainable gain, with the confidence `CONFIDENCE`."""
        shown = self.gain.high / SHOWN_SHARE_OF_GAIN if self.samples > 1 else float("inf")
        return max(0.0, min(shown, self.hindsight.high))


def measure_headroom(rows: Sequence[ResponseRow], pool: Pool, problems: Iterable[Problem] = ()) -> Headroom | None:
    """Measure the headroom on stored answers, or return None if there are no answers.

    `pool` gives the prices of a further sample, and `problems` gives the subject of each question. Only workers that
    answered questions of every benchmark are compared, so that each benchmark has the same weight for each worker.
    """
    benchmarks: dict[str, set[str]] = defaultdict(set)
    reached = [row for row in rows if row.status != "unreachable" and row.worker in pool.names]
    for row in reached:
        benchmarks[row.worker].add(row.benchmark)
    every = set().union(*benchmarks.values())
    workers = sorted(worker for worker, answered in benchmarks.items() if answered == every)
    if not workers:
        return None
    found, known = list(tabulate_scores(reached, workers).values()), map_subjects(problems)
    # Only samples that every worker gave are used, because others say nothing about a choice among all workers.
    samples = min(int((~np.isnan(own.scores)).any(axis=0).sum(axis=1).min()) for own in found)
    strata = [own.scores[:, :, :samples] for own in found]
    subjects = [[known.get(key, "") for key in own.problems] for own in found]
    accuracies = [fmean(float(np.nanmean(array[:, place])) for array in strata) for place in range(len(workers))]
    best = max(range(len(workers)), key=lambda place: accuracies[place])
    level = 2 * CONFIDENCE - 1  # the two-sided confidence at which each end has `CONFIDENCE`
    first = [row for row in reprice_responses(reached, pool) if row.sample == 0]
    return Headroom(
        problems=sum(map(len, strata)),
        samples=samples,
        workers=len(workers),
        best_worker=workers[best],
        best_accuracy=accuracies[best],
        gain=estimate_choice_gain(strata, subjects=subjects, confidence=level),
        hindsight=estimate_hindsight_gain(strata, confidence=level),
        by_chance=fmean(map(expected_oracle_by_chance, strata)) - accuracies[best] if samples == 1 else float("nan"),
        next_sample_usd=fsum(row.response.cost_usd for row in first),
    )


@dataclass(frozen=True)
class RunForecast:
    """The forecast of one training run."""

    problems: int
    """The number of problems in the training mix."""
    group_size: int
    """The number of rollouts per question."""
    signal: float
    """The expected share (0-1) of groups whose rewards differ. Groups of equal rewards give no gradient."""
    signal_by_domain: dict[str, float]
    """The same share for each domain."""
    steps_per_workflow: float
    """The assumed mean number of steps per workflow."""
    rollouts: int
    """The number of rollouts of all training steps."""
    training: Cost
    """The cost of all training steps. The seconds of generation and updates are those of the last run of such a
    policy."""
    cap_usd: float | None
    """The cap on the run's spending in USD. None means that the recipe trains nothing."""
    headroom: Headroom | None = None
    """How far the stored answers lie above the best worker. None means that no answers are stored."""


@dataclass(frozen=True)
class RunMeasurements:
    """The measured figures of a finished run, which are compared with a forecast."""

    folder: str
    """The name of the run's folder."""
    first_signal: float
    """The share (0-1) of groups whose rewards differ in the first `FIRST_STEPS` steps."""
    signal: float
    """The share (0-1) of groups whose rewards differ in all steps."""
    steps_per_workflow: float
    """The mean number of steps per workflow."""
    calls: int
    """The number of worker calls."""
    paid_share: float
    """The share (0-1) of the calls that were paid for; the response cache answered the others."""
    usd: float
    """USD of all responses, including those from the response cache at what they cost when they were first given."""
    paid_usd: float
    """USD that were paid. For a resumed run, this is what its last attempt paid."""
    worker_s: float
    """Seconds of waiting for workers."""
    policy_s: float
    """Seconds of generation and policy updates."""
    differs_in: tuple[str, ...] = ()
    """What was different from the recipe and the pool of the forecast, in words."""


def make_forecast(setup: Setup) -> tuple[RunForecast, RunMeasurements | None]:
    """Forecast training on the stored mix and responses, and return the forecast with the last finished run of the
    recipe, if any: preferably one with the same settings and pool.

    Raises `DataError` if the mix or the responses cannot be read, and `ConfigError` for a worker without a price.
    """
    from ops.curation import training_signal
    from ops.precaching.profiles import tally_responses

    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    stored = read_graded_responses(setup.workspace.data / "responses")
    rows = [row for row in stored if row.worker in setup.pool.names]
    chains = training_signal.make_rescue_prior(setup.recipe.curation.rescued)
    rollouts = setup.recipe.grpo.rollouts_per_question
    shares = training_signal.estimate_group_signals(tally_responses(rows), rollouts, chains)
    last, same = find_last_run(setup, accept_differences=True), find_last_run(setup)
    candidates = read_shortlist(setup)
    with open_existing_ledger(setup) as ledger:
        made = forecast_run(setup, mix, rows, shares, MeasuredUsage.from_rows(rows, ledger), candidates)
    return replace(made, training=replace(made.training, policy_s=Range.exactly(same.policy_s) if same else None)), last


def forecast_run(
    setup: Setup,
    mix: Sequence[Problem],
    rows: Sequence[ResponseRow],
    signal_shares: Mapping[str, float],
    measured: MeasuredUsage,
    candidates: Sequence[Problem] = (),
) -> RunForecast:
    """Forecast GRPO on `mix` with the setup's pool, using the precached responses `rows`.

    `signal_shares` holds the probability that the rewards of a problem's group differ, by the problem's key.
    `candidates` are the precached problems, whose subjects a choice among the workers may use. Raises `ConfigError` for
    a worker without a price.
    """
    grpo, steps = setup.recipe.grpo, (1 + setup.recipe.prompting.max_steps) / 2
    by_domain: dict[str, list[float]] = defaultdict(list)
    for problem in mix:
        by_domain[problem.domain].append(signal_shares.get(problem.key, 0.0))
    return RunForecast(
        problems=len(mix),
        group_size=grpo.rollouts_per_question,
        signal=fmean(value for values in by_domain.values() for value in values) if mix else 0.0,
        signal_by_domain={domain: fmean(values) for domain, values in sorted(by_domain.items())},
        steps_per_workflow=steps,
        rollouts=grpo.steps * grpo.rollouts_per_step,
        training=StageEstimator(setup, estimate_lengths(setup, rows), {}, measured).estimate_training(),
        cap_usd=setup.recipe.budget.run_usd if setup.recipe.is_trained else None,
        headroom=measure_headroom(rows, setup.pool, candidates or mix),
    )


# ── the last run ─────────────────────────────────────────────────────────────


def find_last_run(setup: Setup, accept_differences: bool = False) -> RunMeasurements | None:
    """Return the figures of the newest completed run with this recipe's GRPO settings, policy and pool, or None.

    With `accept_differences`, the newest completed run of a recipe of that name is returned if there is no such run.
    """
    plans = dict(filter(None, map(_read_finished_run, setup.workspace.runs.glob("*"))))
    newest = sorted(plans, key=lambda folder: (folder / RESULT_FILE).stat().st_mtime, reverse=True)
    first_stages = [folder for folder in newest if plans[folder].adaptive is None and plans[folder].recursive is None]
    differences = {folder: tuple(_list_differences(plans[folder], setup)) for folder in first_stages}
    same = [folder for folder in first_stages if not differences[folder]]
    others = [folder for folder in first_stages if plans[folder].recipe.name == setup.recipe.name]
    for folder in [*same, *(others if accept_differences else [])]:
        measured = measure_run(folder)
        return replace(measured, differs_in=differences[folder])
    return None


def _list_differences(plan: RunPlan, setup: Setup) -> Iterator[str]:
    """Return in words what a run's plan has that the recipe and its pool do not."""
    if plan.recipe.policy != setup.recipe.policy:
        yield "another policy"
    if plan.recipe.grpo != setup.recipe.grpo:
        yield "other settings of GRPO"
    if (before := set(plan.pool.names)) != (now := set(setup.pool.names)):
        changes = [f"with {name}" for name in sorted(before - now)]
        changes += [f"without {name}" for name in sorted(now - before)]
        yield f"another pool ({', '.join(changes)})"
    elif plan.pool.workers != setup.pool.workers:
        yield "other settings of its workers"


def _read_finished_run(folder: Path) -> tuple[Path, RunPlan] | None:
    """Return a run's folder and plan if the run reached its last step and none of its files is damaged; None
    otherwise."""
    try:
        result = RunResult.read(folder)
        return None if result is None or result.stopped else (folder, RunPlan.read(folder))
    except DataError:
        return None


def measure_run(folder: Path) -> RunMeasurements:
    """Return the figures of the finished run in a folder."""
    curve = read_curve(folder)
    result = RunResult.read(folder)
    assert result is not None
    made = result.live_calls + result.cached_calls
    return RunMeasurements(
        folder=folder.name,
        first_signal=1 - fmean(row["zero_variance_groups"] for row in curve[:FIRST_STEPS]),
        signal=1 - fmean(row["zero_variance_groups"] for row in curve),
        steps_per_workflow=fmean(row["steps"] for row in curve),
        calls=made,
        paid_share=result.live_calls / made if made else 0.0,
        usd=result.rollouts_usd,
        paid_usd=result.spent_usd,
        worker_s=sum(row["seconds/workers"] for row in curve),
        policy_s=sum(row["seconds"] - row["seconds/workers"] for row in curve),
    )


def compare_with_run(
    forecast: RunForecast, actual: RunMeasurements | None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headings and rows of a table that compares the forecast with the last run: the quantity, its forecast,
    and the run's value. Without a last run there is no column for it."""
    cost = forecast.training
    waiting = f"{_format_seconds(cost.worker_s.expected)}{f', by {cost.limited_by}' * bool(cost.limited_by)}"
    policy = "not measured yet" if cost.policy_s is None else _format_seconds(cost.policy_s.expected)
    facts: list[tuple[str, str, Callable[[RunMeasurements], str]]] = [
        (
            f"groups of {forecast.group_size} whose rewards differ",
            f"{forecast.signal:.1%}",
            lambda a: f"{a.first_signal:.1%} in the first {FIRST_STEPS} steps, {a.signal:.1%} over all",
        ),
        ("steps a workflow", f"{forecast.steps_per_workflow:.1f} (assumed)", lambda a: f"{a.steps_per_workflow:.2f}"),
        ("worker calls", f"{cost.calls.expected:,.0f}", lambda a: f"{a.calls:,} ({a.paid_share:.0%} of them paid for)"),
        ("price of all responses", _format_usd(cost.usd_with_repeats), lambda a: format_usd(a.usd)),
        ("to pay; repeats are free", _format_usd(cost.usd), lambda a: format_usd(a.paid_usd)),
        ("waiting for workers", waiting, lambda a: _format_seconds(a.worker_s)),
        ("policy: writing, updating", policy, lambda a: _format_seconds(a.policy_s)),
    ]
    head = ("a training run", "forecast")
    if actual is None:
        return head, [(name, value) for name, value, _ in facts]
    return (*head, "last run"), [(name, value, shown(actual)) for name, value, shown in facts]


def describe_last_run(actual: RunMeasurements | None) -> str:
    """Return a sentence that says which run the column of the last run is about, and in what it was different."""
    if actual is None:
        return "No training of this recipe has finished in this workspace, so that there is none to compare with."
    if not actual.differs_in:
        return f"The last run is {actual.folder}, with the same settings and pool."
    differences = " and ".join(actual.differs_in)
    return f"The last run is {actual.folder}. It is not quite comparable, since it had {differences}."


def list_warnings(forecast: RunForecast) -> list[str]:
    """Return the warnings that are shown before a run starts."""
    warnings, usd = [], forecast.training.usd
    if forecast.cap_usd is not None and usd.expected > forecast.cap_usd:
        warnings.append(
            f"The run needs about {format_usd(usd.expected)} and its cap is {format_usd(forecast.cap_usd)}: it would "
            "stop there, and continue when budget.run_usd is raised."
        )
    silent = [domain for domain, share in forecast.signal_by_domain.items() if share < MIN_SIGNAL]
    if silent:
        warnings.append(
            f"Fewer than one group in ten will teach anything on {', '.join(silent)}: more candidates "
            "(curation.shortlist_factor) or other workers would."
        )
    return warnings


def describe_basis(forecast: RunForecast) -> str:
    """Return a sentence that says on how many questions and answers the forecast rests."""
    room = forecast.headroom
    if room is None:
        return "This forecast rests on no answers, because none are stored."
    answers = "one answer" if room.samples == 1 else f"{room.samples} answers"
    return (
        f"This forecast rests on {format_count(room.problems, 'question')}, with {answers} of each of "
        f"{format_count(room.workers, 'worker')}."
    )


class Outlook(StrEnum):
    """What the stored answers say about whether training would pay."""

    UNKNOWN = "unknown"
    """No answers are stored."""
    SILENT = "no signal"
    """Too few groups would have different rewards (`MIN_SIGNAL`)."""
    PAYS = "may pay"
    """The right worker for each question is certain to gain something over the best worker."""
    HARDLY_PAYS = "would hardly pay"
    """The right worker for each question gains less than `MIN_GAIN`."""
    ONE_SAMPLE = "cannot be decided with one sample"
    """Neither of the two can be shown with one answer per worker and problem."""
    UNDECIDED = "undecided"
    """Neither of the two can be shown with the stored answers."""


def assess_outlook(headroom: Headroom | None, signal: float) -> Outlook:
    """Judge whether training would pay, where `signal` is the expected share (0-1) of groups with a gradient.

    For workers of equal skill, the result is `PAYS` with a probability of at most 1 - `CONFIDENCE`.
    """
    if headroom is None:
        return Outlook.UNKNOWN
    if signal < MIN_SIGNAL:
        return Outlook.SILENT
    if headroom.gain.low > 0:
        return Outlook.PAYS
    if headroom.max_gain < MIN_GAIN:
        return Outlook.HARDLY_PAYS
    return Outlook.ONE_SAMPLE if headroom.samples == 1 else Outlook.UNDECIDED


def describe_outlook(forecast: RunForecast) -> str:
    """Return a few sentences that say whether training would pay, on what this rests, and what would decide it."""
    room, found = forecast.headroom, assess_outlook(forecast.headroom, forecast.signal)
    if room is None:
        return "Whether training would pay is unknown, because no answers are stored."
    if found is Outlook.SILENT:
        silent = f"Training would not pay: only {forecast.signal:.1%} of the groups would teach anything."
        return f"{silent} {_describe_gains(room)}"
    if found is Outlook.PAYS:
        return (
            f"Training may pay: the right worker for each question gains at least {_points(room.gain.low)} with "
            f"{CONFIDENCE:.0%} confidence, and at most {_points(room.max_gain)}. {_describe_gains(room)} How much of "
            "it a Conductor reaches, only training shows."
        )
    if found is Outlook.HARDLY_PAYS:
        return (
            f"Training would hardly pay: the right worker for each question gains less than {_points(MIN_GAIN)} with "
            f"{CONFIDENCE:.0%} confidence. {_describe_gains(room)} Only combinations of workers could gain more."
        )
    if found is Outlook.ONE_SAMPLE:
        return (
            f"Whether training would pay cannot be decided with one sample. {_describe_gains(room)} Ask for two "
            f"samples (`precaching: {{samples: 2}}` in the recipe); the second answers cost about "
            f"{format_usd(room.next_sample_usd)}."
        )
    return (
        f"Undecided: no gain is certain, and up to {_points(room.max_gain)} are possible. {_describe_gains(room)} "
        "More problems (curation.per_domain) or more samples (precaching.samples) decide."
    )


def _describe_gains(headroom: Headroom) -> str:
    """Return a few sentences about the measured gains above the best worker."""
    alone = f"{headroom.best_worker}, the best worker, solves {headroom.best_accuracy:.1%} alone."
    ends = f"({_signed(headroom.gain.low)} to {_signed(headroom.gain.high)})"
    if headroom.samples > 1:
        return (
            f"{alone} A worker chosen for each question by the other answers adds {_signed(headroom.gain.mean)} points "
            f"{ends}."
        )
    return (
        f"{alone} The best worker of each subject, chosen on other questions, adds {_signed(headroom.gain.mean)} "
        f"points {ends}. Picking the right answer of each question in hindsight would add "
        f"{_signed(headroom.hindsight.mean)}, and luck alone would add {_signed(headroom.by_chance)} for workers "
        "that all find the same questions hard."
    )


def _points(gain: float) -> str:
    return f"{100 * gain:.1f} points"


def _signed(gain: float) -> str:
    return f"{100 * gain:+.1f}"


def _format_usd(span: Range) -> str:
    return f"about {format_usd(span.expected)} ({format_usd(span.low)} to {format_usd(span.high)})"


def _format_seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 3600:.1f} h" if value >= 7200 else f"{value / 60:.0f} min"


def list_figures(forecast: RunForecast) -> Mapping[str, Any]:
    """Return the forecast's figures as a flat mapping for JSON, which begins with the numbers of questions and
    samples."""
    room = forecast.headroom
    return {
        "questions": room.problems if room else 0,
        "samples": room.samples if room else 0,
        "outlook": str(assess_outlook(room, forecast.signal)),
        "groups_with_signal": forecast.signal,
        "rollouts_a_question": forecast.group_size,
        **(_list_gains(room) if room else {}),
        "worker_calls": forecast.training.calls.expected,
        **{f"usd_{end}": usd for end, usd in forecast.training.usd._asdict().items()},
        "worker_seconds": forecast.training.worker_s.expected,
    }


def _list_gains(headroom: Headroom) -> dict[str, float]:
    gains = {f"gain_{end}": value for end, value in headroom.gain._asdict().items()}
    gains |= {"gain_at_most": headroom.max_gain, "gain_in_hindsight": headroom.hindsight.mean}
    return gains | ({"gain_by_chance": headroom.by_chance} if headroom.samples == 1 else {})
