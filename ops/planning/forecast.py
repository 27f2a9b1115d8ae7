"""Forecast the signal, cost and duration of a training run before it starts.

Calls, USD and waiting times are those of the plan's training stage (`ops.planning.stage_estimates`), with its
assumptions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ops.core.errors import DataError, counted
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.planning.estimate import Cost, Measured, Range
from ops.planning.lengths import lengths, stored_shortlist
from ops.planning.stage_estimates import Stages
from ops.planning.stored import ledger_of
from ops.precaching.profiles import map_subjects, tabulate_scores
from ops.results.statistics import Interval, gain_of_choice, hindsight_gain, oracle_by_chance
from ops.training.run.training_run import RESULT, RunPlan, RunResult, read_curve
from ops.workers.pool import at_prices

FIRST_STEPS = 5
"""Number of initial steps compared with the forecast; later steps also reflect learning."""
LITTLE = 0.1
"""A share of groups with a gradient below which training learns little."""
ROOM = 0.05
"""The gain in accuracy that a training has to promise."""
SURE = 0.95
"""The confidence of each end of a gain: the true gain is beyond it with a probability of at most 1 - `SURE`."""
SHOWN = 0.5
"""The share of the attainable gain that a choice by one other answer of each worker is taken to show. It was 57 to 65 %
on published outcomes of ten samples (LiveCodeBench, three models at a time) and about 35 % on simulated workers whose
skill differs by normal deviates. `make forecast` measures how often "would hardly pay" is false for them."""


class Room(NamedTuple):
    """The room above the best single worker, on the precached problems (accuracies and shares in [0, 1]).

    What would be attained by the right worker for each question lies above what a choice by other answers shows
    (`gain`), and below what the best answer of each question reaches in hindsight (`hindsight`).
    """

    problems: int
    samples: int
    """Answers of a worker to a problem: the most that every worker gave."""
    workers: int
    best: str
    """The best worker."""
    alone: float
    """Its accuracy, as the mean over benchmarks."""
    gain: Interval
    """What choosing a worker for each question adds, judged on answers that took no part in the choice. With one
    sample the choice is by subject and benchmark, since nothing else is known of a question's workers."""
    hindsight: Interval
    """What the best answer of each question adds, luck included."""
    by_chance: float
    """The part of `hindsight` that luck gives workers of these accuracies which find the same questions hard; NaN with
    several samples."""
    next_sample_usd: float
    """USD of one more answer of every worker to these problems, at the pool's prices."""

    @property
    def at_most(self) -> float:
        """The upper end of the attainable gain, with the confidence `SURE`."""
        shown = self.gain.high / SHOWN if self.samples > 1 else float("inf")
        return max(0.0, min(shown, self.hindsight.high))


def room_above(rows: Sequence[ResponseRow], pool: Pool, problems: Iterable[Problem] = ()) -> Room | None:
    """Measure the room on stored answers; None without answers. `pool` prices a further sample, and `problems` say the
    subject of each question.

    Only the workers that answered on every benchmark count, so that each benchmark weighs the same for each of them.
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
    # A further sample of some workers only says nothing of a choice among all.
    samples = min(int((~np.isnan(own.scores)).any(axis=0).sum(axis=1).min()) for own in found)
    strata = [own.scores[:, :, :samples] for own in found]
    subjects = [[known.get(key, "") for key in own.problems] for own in found]
    accuracies = [fmean(float(np.nanmean(array[:, place])) for array in strata) for place in range(len(workers))]
    best = max(range(len(workers)), key=lambda place: accuracies[place])
    level = 2 * SURE - 1  # the confidence of both ends together
    first = [row for row in at_prices(reached, pool) if row.sample == 0]
    return Room(
        problems=sum(map(len, strata)),
        samples=samples,
        workers=len(workers),
        best=workers[best],
        alone=accuracies[best],
        gain=gain_of_choice(strata, subjects=subjects, confidence=level),
        hindsight=hindsight_gain(strata, confidence=level),
        by_chance=fmean(map(oracle_by_chance, strata)) - accuracies[best] if samples == 1 else float("nan"),
        next_sample_usd=fsum(row.response.cost_usd for row in first),
    )


@dataclass(frozen=True)
class RunForecast:
    """The forecast of one training run."""

    problems: int
    group: int
    """Rollouts per question."""
    signal: float
    """Expected share (0-1) of groups whose rewards differ; zero-variance groups give no gradient."""
    signal_by_domain: dict[str, float]
    steps: float
    """Assumed mean number of steps per workflow."""
    rollouts: int
    training: Cost
    """Cost of all steps. The seconds of generation and updates are those of the last run of such a policy."""
    cap_usd: float | None
    """None: the recipe trains nothing."""
    room: Room | None = None
    """None: no answers are stored."""


@dataclass(frozen=True)
class Actual:
    """The measured figures of a finished run."""

    folder: str
    signal_at_first: float
    signal: float
    steps: float
    calls: int
    paid_share: float
    usd: float
    paid_usd: float
    """USD paid; for a resumed run, by its last attempt only."""
    worker_s: float
    policy_s: float


def make_forecast(setup: Setup) -> tuple[RunForecast, Actual | None]:
    """Forecast training on the stored mix and responses; also return the last comparable run, if any.

    Raises `DataError` if the mix or the responses cannot be read, `ConfigError` for a worker without a price.
    """
    from ops.curation import signal
    from ops.precaching.profiles import tally_responses

    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    stored = read_graded_responses(setup.workspace.data / "responses")
    rows = [row for row in stored if row.worker in setup.pool.names]
    chains = signal.make_rescue_prior(setup.recipe.curation.rescued)
    shares = signal.estimate_group_signals(tally_responses(rows), setup.recipe.grpo.rollouts_per_question, chains)
    last = last_run(setup)
    candidates = stored_shortlist(setup)
    with ledger_of(setup) as ledger:
        made = run_forecast(setup, mix, rows, shares, Measured.of(rows, ledger), candidates)
    return replace(made, training=replace(made.training, policy_s=Range.of(last.policy_s) if last else None)), last


def run_forecast(
    setup: Setup,
    mix: Sequence[Problem],
    rows: Sequence[ResponseRow],
    shares: Mapping[str, float],
    measured: Measured,
    candidates: Sequence[Problem] = (),
) -> RunForecast:
    """Forecast GRPO on `mix` with the setup's pool, using the precached responses `rows`.

    `shares` holds each problem's probability that its group differs; `candidates` are the precached problems, whose
    subjects a choice among the workers may use. Raises `ConfigError` for a worker without a price.
    """
    grpo, steps = setup.recipe.grpo, (1 + setup.recipe.prompting.max_steps) / 2
    by_domain: dict[str, list[float]] = defaultdict(list)
    for problem in mix:
        by_domain[problem.domain].append(shares.get(problem.key, 0.0))
    return RunForecast(
        problems=len(mix),
        group=grpo.rollouts_per_question,
        signal=fmean(value for values in by_domain.values() for value in values) if mix else 0.0,
        signal_by_domain={domain: fmean(values) for domain, values in sorted(by_domain.items())},
        steps=steps,
        rollouts=grpo.steps * grpo.rollouts_per_step,
        training=Stages(setup, lengths(setup, rows), {}, measured).training(),
        cap_usd=setup.recipe.budget.run_usd if setup.recipe.trains else None,
        room=room_above(rows, setup.pool, candidates or mix),
    )


# ── the last run ─────────────────────────────────────────────────────────────


def last_run(setup: Setup) -> Actual | None:
    """The newest completed run with this recipe's GRPO settings and pool; None if there is none."""
    recipe = setup.recipe
    plans = dict(filter(None, map(_finished, setup.workspace.runs.glob("*"))))
    for folder in sorted(plans, key=lambda folder: (folder / RESULT).stat().st_mtime, reverse=True):
        plan = plans[folder]
        if plan.adaptive is not None or plan.recursive is not None:
            continue
        if plan.recipe.grpo == recipe.grpo and plan.recipe.policy == recipe.policy and plan.pool == setup.pool:
            return _actual(folder, recipe.grpo.rollouts_per_step)
    return None


def _finished(folder: Path) -> tuple[Path, RunPlan] | None:
    """Return a run with its plan if it came to its last step, and nothing of it is damaged."""
    try:
        result = RunResult.read(folder)
        return None if result is None or result.stopped else (folder, RunPlan.read(folder))
    except DataError:
        return None


def _actual(folder: Path, rollouts_per_step: int) -> Actual:
    curve = read_curve(folder)
    result = RunResult.read(folder)
    assert result is not None
    made = result.live_calls + result.cached_calls
    return Actual(
        folder=folder.name,
        signal_at_first=1 - fmean(row["zero_variance_groups"] for row in curve[:FIRST_STEPS]),
        signal=1 - fmean(row["zero_variance_groups"] for row in curve),
        steps=fmean(row["steps"] for row in curve),
        calls=made,
        paid_share=result.live_calls / made if made else 0.0,
        usd=result.cost_usd,
        paid_usd=result.spent_usd,
        worker_s=sum(row["seconds/workers"] for row in curve),
        policy_s=sum(row["seconds"] - row["seconds/workers"] for row in curve),
    )


def comparison(made: RunForecast, actual: Actual | None) -> list[tuple[str, str, str]]:
    """Table rows of (quantity, forecast, last run)."""
    cost = made.training
    waiting = f"{_seconds(cost.worker_s.expected)}{f', by {cost.limited_by}' * bool(cost.limited_by)}"
    policy = "not measured yet" if cost.policy_s is None else _seconds(cost.policy_s.expected)
    facts: list[tuple[str, str, Callable[[Actual], str]]] = [
        (
            f"groups of {made.group} whose rewards differ",
            f"{made.signal:.1%}",
            lambda a: f"{a.signal_at_first:.1%} in the first {FIRST_STEPS} steps, {a.signal:.1%} over all",
        ),
        ("steps a workflow", f"{made.steps:.1f} (assumed)", lambda a: f"{a.steps:.2f}"),
        ("worker calls", f"{cost.calls.expected:,.0f}", lambda a: f"{a.calls:,} ({a.paid_share:.0%} of them paid for)"),
        ("price of all responses", _usd(cost.worth), lambda a: f"${a.usd:,.4f}"),
        ("to pay; repeats are free", _usd(cost.usd), lambda a: f"${a.paid_usd:,.4f}"),
        ("waiting for workers", waiting, lambda a: _seconds(a.worker_s)),
        ("policy: writing, updating", policy, lambda a: _seconds(a.policy_s)),
    ]
    return [(name, value, shown(actual) if actual else "–") for name, value, shown in facts]


def warnings(made: RunForecast) -> list[str]:
    """Warnings to show before the run starts."""
    warnings, usd = [], made.training.usd
    if made.cap_usd is not None and usd.expected > made.cap_usd:
        warnings.append(
            f"The run needs about ${usd.expected:,.2f} and its cap is ${made.cap_usd:,.2f}: it would stop "
            "there, and go on when budget.run_usd is raised."
        )
    silent = [domain for domain, share in made.signal_by_domain.items() if share < LITTLE]
    if silent:
        warnings.append(
            f"Fewer than one group in ten will teach anything on {', '.join(silent)}: more candidates "
            "(curation.shortlist_factor) or other workers would."
        )
    return warnings


def basis(made: RunForecast) -> str:
    """Say how many questions and answers the forecast rests on."""
    room = made.room
    if room is None:
        return "This forecast rests on no answers, because none are stored."
    answers = "one answer" if room.samples == 1 else f"{room.samples} answers"
    return (
        f"This forecast rests on {counted(room.problems, 'question')}, with {answers} of each of "
        f"{counted(room.workers, 'worker')}."
    )


class Outlook(StrEnum):
    """What the stored answers say about a training."""

    UNKNOWN = "unknown"
    SILENT = "no signal"
    PAYS = "may pay"
    NOT = "would hardly pay"
    ONE_SAMPLE = "cannot be decided with one sample"
    UNDECIDED = "undecided"


def outlook(room: Room | None, signal: float) -> Outlook:
    """Judge whether training would pay; `signal` is the expected share of groups with a gradient.

    For workers of equal skill, `PAYS` has a probability of at most 1 - `SURE`.
    """
    if room is None:
        return Outlook.UNKNOWN
    if signal < LITTLE:
        return Outlook.SILENT
    if room.gain.low > 0:
        return Outlook.PAYS
    if room.at_most < ROOM:
        return Outlook.NOT
    return Outlook.ONE_SAMPLE if room.samples == 1 else Outlook.UNDECIDED


def verdict(made: RunForecast) -> str:
    """Say in a few sentences whether training would pay, what that rests on, and what would decide it."""
    room, found = made.room, outlook(made.room, made.signal)
    if room is None:
        return "Whether training would pay is unknown, because no answers are stored."
    if found is Outlook.SILENT:
        return f"Training would not pay: only {made.signal:.1%} of the groups would teach anything. {_measured(room)}"
    if found is Outlook.PAYS:
        return (
            f"Training may pay: the right worker for each question gains at least {_points(room.gain.low)} with "
            f"{SURE:.0%} confidence, and at most {_points(room.at_most)}. {_measured(room)} How much of it a Conductor "
            "reaches, only training shows."
        )
    if found is Outlook.NOT:
        return (
            f"Training would hardly pay: the right worker for each question gains less than {_points(ROOM)} with "
            f"{SURE:.0%} confidence. {_measured(room)} Only combinations of workers could gain more."
        )
    if found is Outlook.ONE_SAMPLE:
        return (
            f"Whether training would pay cannot be decided with one sample. {_measured(room)} Ask for two samples "
            f"(`precaching: {{samples: 2}}` in the recipe); the second answers cost about "
            f"${room.next_sample_usd:,.2f}."
        )
    return (
        f"Undecided: no gain is certain, and up to {_points(room.at_most)} are possible. {_measured(room)} "
        "More problems (curation.per_domain) or more samples (precaching.samples) decide."
    )


def _measured(room: Room) -> str:
    """Describe the measured gains above the best worker."""
    alone = f"{room.best}, the best worker, solves {room.alone:.1%} alone."
    ends = f"({_signed(room.gain.low)} to {_signed(room.gain.high)})"
    if room.samples > 1:
        return (
            f"{alone} A worker chosen for each question by the other answers adds {_signed(room.gain.mean)} points "
            f"{ends}."
        )
    return (
        f"{alone} The best worker of each subject, chosen on other questions, adds {_signed(room.gain.mean)} points "
        f"{ends}. Picking the right answer of each question in hindsight would add {_signed(room.hindsight.mean)}, and "
        f"luck alone would add {_signed(room.by_chance)} for workers that all find the same questions hard."
    )


def _points(gain: float) -> str:
    return f"{100 * gain:.1f} points"


def _signed(gain: float) -> str:
    return f"{100 * gain:+.1f}"


def _usd(span: Range) -> str:
    return f"about ${span.expected:,.4f} (${span.low:,.4f} to ${span.high:,.4f})"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 3600:.1f} h" if value >= 7200 else f"{value / 60:.0f} min"


def as_facts(made: RunForecast) -> Mapping[str, Any]:
    """The forecast's figures as a flat mapping that JSON can represent; what it rests on comes first."""
    room = made.room
    return {
        "questions": room.problems if room else 0,
        "samples": room.samples if room else 0,
        "outlook": str(outlook(room, made.signal)),
        "groups_with_signal": made.signal,
        "rollouts_a_question": made.group,
        **(_gains(room) if room else {}),
        "worker_calls": made.training.calls.expected,
        **{f"usd_{end}": usd for end, usd in made.training.usd._asdict().items()},
        "worker_seconds": made.training.worker_s.expected,
    }


def _gains(room: Room) -> dict[str, float]:
    gains = {f"gain_{end}": value for end, value in room.gain._asdict().items()}
    gains |= {"gain_at_most": room.at_most, "gain_in_hindsight": room.hindsight.mean}
    return gains | ({"gain_by_chance": room.by_chance} if room.samples == 1 else {})
