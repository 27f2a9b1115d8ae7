"""What a training run will give, cost and take, said before it is started.

Nothing is known yet of the workflows that the policy will write, so two things are assumed and said: a
workflow has (1 + max_steps) / 2 steps, and each step goes to any worker alike.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ops.benchmarks.store import read_problems
from ops.config import Pool, Setup, Worker
from ops.core.problem import Problem
from ops.core.rows import ResponseRow, load_responses
from ops.precaching.estimate import SUBTASK_TOKENS
from ops.training.run.plan import CURVE, RunPlan, RunResult
from ops.workers.pricing import at_prices
from ops.workers.providers import worst_price

FIRST_STEPS = 5
"""Steps at the start of a run that are compared with the forecast: later ones show what was learnt."""


class Range(NamedTuple):
    """Low: no step sees another, no group is refilled. High: every step sees all that went before it, and as many
    groups are refilled as may be. The rest lies between."""

    low: float
    high: float


@dataclass(frozen=True)
class RunForecast:
    """One training run, foretold: USD and seconds for all of its steps."""

    problems: int
    group: int
    """Rollouts of one question."""
    signal: float
    """Expected share (0-1) of groups whose rewards differ; the others teach nothing."""
    signal_by_domain: dict[str, float]
    steps: float
    """Steps a workflow, assumed."""
    rollouts: int
    calls: float
    usd: Range
    """What the responses are worth; identical calls are paid for once, so what is paid is less."""
    cap_usd: float
    worker_s: float
    """Waiting for workers."""
    limited_by: str
    """What `worker_s` is made of: the slowest worker's limits, or the length of a workflow."""
    policy_s: float | None
    """Writing and updating, as the last run of such a policy took; None: never measured."""


@dataclass(frozen=True)
class Actual:
    """The same figures of a run that has ended."""

    folder: str
    signal_at_first: float
    signal: float
    steps: float
    calls: int
    paid_share: float
    usd: float
    worker_s: float
    policy_s: float


def foretell(setup: Setup) -> tuple[RunForecast, Actual | None]:
    """The forecast for the stored mix and responses, and the last run like it. Raises `DataError`, `ConfigError`."""
    from ops.curation import signal  # SciPy: too much for the plan, which looks up the last run here
    from ops.precaching.profiles import tallies

    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    known = at_prices(load_responses(setup.workspace.data / "responses"), setup.pool)
    rows = [row for row in known if row.worker in setup.pool.names]
    chains = signal.rescue(setup.recipe.curation.rescued)
    shares = signal.group_signals(tallies(rows), setup.recipe.grpo.rollouts_per_question, chains)
    last = last_run(setup)
    policy_step_s = last.policy_s / setup.recipe.grpo.steps if last else None
    return run_forecast(setup, mix, rows, shares, policy_step_s), last


def run_forecast(
    setup: Setup,
    mix: Sequence[Problem],
    rows: Sequence[ResponseRow],
    shares: Mapping[str, float],
    policy_step_s: float | None = None,
) -> RunForecast:
    """Foretell GRPO on `mix` with `pool`, of which precaching gave `rows`.

    `shares` holds each problem's probability that its group differs; `policy_step_s` is what writing and
    updating take a step. Raises `ConfigError` for a worker without a price.
    """
    recipe, pool = setup.recipe, setup.pool
    grpo, steps = recipe.grpo, (1 + recipe.prompting.max_steps) / 2
    by_domain: dict[str, list[float]] = defaultdict(list)
    for problem in mix:
        by_domain[problem.domain].append(shares.get(problem.key, 0.0))
    answered = [row for row in rows if row.status == "ok" and row.worker in pool.names]
    rollouts = grpo.steps * grpo.rollouts_per_step
    step_s, limited_by = _worker_seconds(pool, answered, grpo.rollouts_per_step, steps)
    context = _context_usd(pool, answered, steps, setup.pool_file)
    alone = rollouts * steps * _call_usd(pool, answered)
    return RunForecast(
        problems=len(mix),
        group=grpo.rollouts_per_question,
        signal=fmean(value for values in by_domain.values() for value in values) if mix else 0.0,
        signal_by_domain={domain: fmean(values) for domain, values in sorted(by_domain.items())},
        steps=steps,
        rollouts=rollouts,
        calls=rollouts * steps,
        usd=Range(alone, (alone + rollouts * context) * (1 + grpo.refills_per_step / grpo.questions_per_step)),
        cap_usd=recipe.budget.run_usd,
        worker_s=grpo.steps * step_s,
        limited_by=limited_by,
        policy_s=None if policy_step_s is None else grpo.steps * policy_step_s,
    )


def _call_usd(pool: Pool, answered: Sequence[ResponseRow]) -> float:
    """Mean over workers and benchmarks, each weighing the same, as the mix and the assumption have it."""
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in answered:
        costs[row.worker, row.benchmark].append(row.response.cost_usd)
    return fmean(fmean(values) for values in costs.values()) if costs else 0.0


def _context_usd(pool: Pool, answered: Sequence[ResponseRow], steps: float, file: Path) -> float:
    """What seeing all earlier steps adds to one workflow: `steps` choose 2 subtasks and answers, read again."""
    if not answered:
        return 0.0
    read_again = steps * (steps - 1) / 2 * (SUBTASK_TOKENS + fmean(row.response.completion_tokens for row in answered))
    return read_again * fmean(worst_price(worker, file)[0] for worker in pool.workers)


def _worker_seconds(pool: Pool, answered: Sequence[ResponseRow], rollouts: int, steps: float) -> tuple[float, str]:
    """How long one training step waits for workers: as long as the busiest of them, or as one workflow lasts.

    A worker with a declared latency answers at once and is never waited for.
    """
    latencies: dict[str, list[float]] = defaultdict(list)
    for row in answered:
        latencies[row.worker].append(row.response.latency_s)
    waited = {w.name: fmean(latencies[w.name]) for w in pool.workers if w.latency_s is None and latencies[w.name]}
    each = rollouts * steps / len(pool.workers)
    busy = {worker.name: _busy_seconds(worker, each, waited.get(worker.name, 0.0)) for worker in pool.workers}
    slowest = max(busy, key=lambda name: busy[name])
    chain = steps * sum(waited.values()) / len(pool.workers)
    if chain >= busy[slowest]:
        return chain, "the length of a workflow"
    return busy[slowest], f"the limits of {slowest}"


def _busy_seconds(worker: Worker, calls: float, latency_s: float) -> float:
    rate = 60.0 / worker.requests_per_minute if worker.requests_per_minute else 0.0
    return calls * max(latency_s / worker.concurrency, rate)


# ── what happened ────────────────────────────────────────────────────────────


def last_run(setup: Setup) -> Actual | None:
    """The newest run of this recipe's GRPO settings with this pool that took all its steps; None: there is none."""
    recipe = setup.recipe
    results = {folder: RunResult.read(folder) for folder in setup.workspace.runs.glob("*")}
    finished = [folder for folder, result in results.items() if result is not None and not result.stopped]
    for folder in sorted(finished, key=lambda folder: (folder / CURVE).stat().st_mtime, reverse=True):
        plan = RunPlan.read(folder)
        if plan.adaptive is not None or plan.recursive is not None:
            continue
        if plan.recipe.grpo == recipe.grpo and plan.recipe.policy == recipe.policy and plan.pool == setup.pool:
            return _actual(folder, recipe.grpo.rollouts_per_step)
    return None


def _actual(folder: Path, rollouts_per_step: int) -> Actual:
    curve = [json.loads(line) for line in (folder / CURVE).read_text(encoding="utf-8").splitlines()]
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
        worker_s=sum(row["seconds/workers"] for row in curve),
        policy_s=sum(row["seconds"] - row["seconds/workers"] for row in curve),
    )


def comparison(made: RunForecast, actual: Actual | None) -> list[tuple[str, str, str]]:
    """Rows of (what, forecast, last run), for a person."""
    low, high = made.usd
    policy = "not measured yet" if made.policy_s is None else _seconds(made.policy_s)
    facts: list[tuple[str, str, Callable[[Actual], str]]] = [
        (
            f"groups of {made.group} whose rewards differ",
            f"{made.signal:.1%}",
            lambda a: f"{a.signal_at_first:.1%} in the first {FIRST_STEPS} steps, {a.signal:.1%} over all",
        ),
        ("steps a workflow", f"{made.steps:.1f} (assumed)", lambda a: f"{a.steps:.2f}"),
        ("worker calls", f"{made.calls:,.0f}", lambda a: f"{a.calls:,} ({a.paid_share:.0%} of them paid for)"),
        ("what the responses are worth", f"${low:,.4f} to ${high:,.4f}", lambda a: f"${a.usd:,.4f}"),
        ("waiting for workers", f"{_seconds(made.worker_s)}, by {made.limited_by}", lambda a: _seconds(a.worker_s)),
        ("writing and updating", policy, lambda a: _seconds(a.policy_s)),
    ]
    return [(name, value, shown(actual) if actual else "–") for name, value, shown in facts]


def warnings(made: RunForecast) -> list[str]:
    """What a person should know before the run is started."""
    warnings = []
    if made.usd.high > made.cap_usd:
        warnings.append(
            f"The run may need up to ${made.usd.high:,.2f} and its cap is ${made.cap_usd:,.2f}: it would stop "
            "there, and go on when budget.run_usd is raised."
        )
    silent = [domain for domain, share in made.signal_by_domain.items() if share < 0.1]
    if silent:
        warnings.append(
            f"Fewer than one group in ten will teach anything on {', '.join(silent)}: more candidates "
            "(curation.shortlist_factor) or other workers would."
        )
    return warnings


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 3600:.1f} h" if value >= 7200 else f"{value / 60:.0f} min"


def as_facts(made: RunForecast) -> Mapping[str, Any]:
    """The figures that a program wants: flat and JSON-ready."""
    return {
        "groups_with_signal": made.signal,
        "rollouts_a_question": made.group,
        "worker_calls": made.calls,
        "usd_low": made.usd.low,
        "usd_high": made.usd.high,
        "worker_seconds": made.worker_s,
    }
