"""Forecast the signal, cost and duration of a training run before it starts.

Calls, USD and waiting times are those of the plan's training stage (`ops.planning.stages`), with its assumptions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ops.benchmarks.store import read_problems
from ops.config import Setup
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.rows import ResponseRow, load_responses
from ops.planning.estimate import Cost, Measured, Range
from ops.planning.lengths import lengths
from ops.planning.stages import Stages
from ops.planning.stored import ledger_of
from ops.training.run.plan import RESULT, RunPlan, RunResult, read_curve

FIRST_STEPS = 5
"""Number of initial steps compared with the forecast; later steps also reflect learning."""


LITTLE = 0.1
"""A share of groups with a gradient below which training learns little."""
ROOM = 0.05
"""The gain in accuracy that a training has to promise."""
SURE = 0.95


class Room(NamedTuple):
    """The room above the best single worker, on the precached problems (accuracies and shares in [0, 1])."""

    problems: int
    best: str
    """The best worker."""
    alone: float
    """Its accuracy."""
    gain: float
    """Share of problems that it fails and another worker solves: the gain of a perfect choice among the workers."""
    confidence: float
    """Probability that the gain is at least `ROOM`, by Jeffreys' prior for a share."""


def room_above(rows: Sequence[ResponseRow]) -> Room | None:
    """Measure the room on stored answers; None without answers.

    A worker solves a problem if at least half of its samples are right. Problems without an answer of the best worker
    are left out.
    """
    from scipy.special import betainc

    from ops.precaching.profiles import best_single

    if not rows:
        return None
    best = best_single(rows).worker
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.status != "unreachable":
            scores[row.problem_key][row.worker].append(row.score)
    solved = [
        {worker for worker, own in answers.items() if fmean(own) >= 0.5}
        for answers in scores.values()
        if best in answers
    ]
    count, gained = len(solved), sum(bool(workers) and best not in workers for workers in solved)
    confidence = 1 - float(betainc(gained + 0.5, count - gained + 0.5, ROOM))
    return Room(count, best, sum(best in workers for workers in solved) / count, gained / count, confidence)


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
    from ops.precaching.profiles import tallies

    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    stored = load_responses(setup.workspace.data / "responses")
    rows = [row for row in stored if row.worker in setup.pool.names]
    chains = signal.rescue(setup.recipe.curation.rescued)
    shares = signal.group_signals(tallies(rows), setup.recipe.grpo.rollouts_per_question, chains)
    last = last_run(setup)
    with ledger_of(setup) as ledger:
        made = run_forecast(setup, mix, rows, shares, Measured.of(rows, ledger))
    return replace(made, training=replace(made.training, policy_s=Range.of(last.policy_s) if last else None)), last


def run_forecast(
    setup: Setup,
    mix: Sequence[Problem],
    rows: Sequence[ResponseRow],
    shares: Mapping[str, float],
    measured: Measured,
) -> RunForecast:
    """Forecast GRPO on `mix` with the setup's pool, using the precached responses `rows`.

    `shares` holds each problem's probability that its group differs. Raises `ConfigError` for a worker without a price.
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
        room=room_above(rows),
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


def verdict(made: RunForecast) -> str:
    """Say in a sentence whether training would pay, and how sure that is."""
    room = made.room
    if room is None:
        return "Whether training would pay is unknown: no answers are stored."
    points, right = f"{100 * ROOM:.0f} points", "the right worker for each question gains"
    on = f"{room.best}'s {room.alone:.1%} on {room.problems} problems"
    measured = f"measured: {100 * room.gain:.1f} points above {on}"
    if made.signal < LITTLE:
        return f"Training would not pay: {made.signal:.1%} of the groups would teach anything ({measured})."
    if room.confidence >= SURE:
        sure = f"with {_sure(room.confidence)} confidence {right} {points} or more"
        return f"Training may pay: {sure} ({measured}). How much of it a Conductor reaches, only training shows."
    if room.confidence <= 1 - SURE:
        sure = f"with {_sure(1 - room.confidence)} confidence {right} less than {points}"
        return f"Training would hardly pay: {sure} ({measured}). Only combinations of workers could."
    sure = f"{right} {points} or more with {room.confidence:.1%} confidence"
    return f"Undecided: {sure} ({measured}). More problems (curation.per_domain) decide."


def _sure(probability: float) -> str:
    return "over 99.9%" if probability > 0.999 else f"{probability:.1%}"


def _usd(span: Range) -> str:
    return f"about ${span.expected:,.4f} (${span.low:,.4f} to ${span.high:,.4f})"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 3600:.1f} h" if value >= 7200 else f"{value / 60:.0f} min"


def as_facts(made: RunForecast) -> Mapping[str, Any]:
    """The forecast's figures as a flat mapping that JSON can represent."""
    return {
        "groups_with_signal": made.signal,
        "rollouts_a_question": made.group,
        **({"gain_of_the_right_worker": made.room.gain, "confidence": made.room.confidence} if made.room else {}),
        "worker_calls": made.training.calls.expected,
        **{f"usd_{end}": usd for end, usd in made.training.usd._asdict().items()},
        "worker_seconds": made.training.worker_s.expected,
    }
