"""The quickstart on several seeds, greedy and sampled, beside opponents at equal cost, as tables in docs."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from assets.conductor import run_folder
from assets.resources import Podium
from ops.benchmarks.store import read_problems
from ops.config import Setup
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.asking import evaluate_method
from ops.evaluation.baselines.best_static import workflow
from ops.evaluation.method import Method
from ops.evaluation.reading import Score, entropy, questions, read, right_if_valid, score, share, valid
from ops.evaluation.rows import ScoreRow
from ops.miniature.flows import CHECK, SOLVE, STRONGEST, Flow, chain, five_voices, flows, mixture
from ops.precaching.opening import open_client
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.plan import RunResult, read_curve
from ops.workers.client import WorkerClient
from ops.workflow.team import Team
from pipelines.pages import MEASUREMENTS, write_between
from pipelines.run import live

MARK = "<!-- made by `make seeds` -->"
SAMPLED = 1.0
"""The temperature at which policies are read beside greedily: what they write as they are."""
ENDS = 20
"""Steps at either end of a training over which a step's seconds are means."""
CHOSEN_BY = 40
"""Problems of each domain of the mix on which the static workflow is chosen."""
HEAD = ("seed", "greedy in-domain", "unseen", "valid", "right if valid", "entropy, bits", "steps", "reward")
"""Of the table of seeds; an arrow leads from the cold start to the Conductor."""
SYSTEMS = ("Conductor, greedy", "cold start, greedy", "Conductor, sampled", "cold start, sampled")


class Outcome(NamedTuple):
    """One seed."""

    seed: int
    rows: Mapping[str, list[ScoreRow]]
    """One of `SYSTEMS` → what its workflows gave."""
    trained: RunResult
    curve: Sequence[Mapping[str, Any]] = ()
    """The steps of GRPO."""

    @property
    def scores(self) -> dict[str, Score]:
        """One of `SYSTEMS` → its accuracies and cost."""
        return {name: score(rows) for name, rows in self.rows.items()}


def write_table(workspace: Workspace, seeds: Sequence[int]) -> Path:
    """Run every seed and write the tables into docs/reference/measurements.md. Raises `PodiumError`."""
    outcomes: list[Outcome] = []
    others: dict[str, Score] = {}
    for seed in seeds:
        live(workspace, "quickstart", seed)
        podium = Podium(root=str(workspace.root), seed=seed)
        setup = beyond_its_life(podium.load())
        others = others or opponents(setup)  # by the first seed's mix
        outcomes.append(measured(setup, run_folder(podium)))
        families = {problem.key: problem.subject for problem in questions(setup)}
        text = "\n".join((_tables(outcomes, others), _profile(outcomes), _by_family(outcomes, families)))
        write_between(workspace.root / MEASUREMENTS, MARK, text)
    return MEASUREMENTS


def beyond_its_life(setup: Setup) -> Setup:
    """The setup with as much again to spend: the cap of a run is for its life, and this measures more."""
    budget = setup.recipe.budget.model_copy(update={"run_usd": 2 * setup.recipe.budget.run_usd})
    return replace(setup, recipe=setup.recipe.model_copy(update={"budget": budget}))


def measured(setup: Setup, folder: Path) -> Outcome:
    """A finished training run's policy and the one that it started from, greedily and sampled, on every question."""
    trained = RunResult.read(folder)
    assert trained is not None  # the training has just ended well
    policies = {"Conductor": folder / "policy", "cold start": base_policy_folder(setup)}
    rows = {
        f"{name}, {way}": read(setup, policy, temperature)
        for name, policy in policies.items()
        for way, temperature in (("greedy", 0.0), ("sampled", SAMPLED))
    }
    return Outcome(setup.recipe.seed, rows, trained, read_curve(folder))


# ── opponents ────────────────────────────────────────────────────────────────


def opponents(setup: Setup) -> dict[str, Score]:
    """Systems that need no training, on the same questions; the static workflow is chosen on the training mix.

    Workflows of the stated set, by their names, which the embedded pool alone can run: its editor counts the votes and
    its strongest worker judges the mixture. The baselines of `ops.evaluation.baselines` need no such worker.
    """
    client = open_client(setup, "opponents")
    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    Random(0).shuffle(mix)
    domains = sorted({problem.domain for problem in mix})
    known = [problem for name in domains for problem in [p for p in mix if p.domain == name][:CHOSEN_BY]]
    best = max(flows(), key=lambda flow: share(row.correct for row in _run(flow, known, setup, client)))
    chosen = {
        f"best worker ({STRONGEST})": chain("alone", (STRONGEST, SOLVE)),
        "five samples of it, voted": five_voices(),
        "it solves, then checks": chain("check", (STRONGEST, SOLVE), (STRONGEST, CHECK)),
        "Mixture-of-Agents": mixture(),
        f"best static workflow ({best.name})": best,
    }
    return {name: score(_run(flow, questions(setup), setup, client)) for name, flow in chosen.items()}


def _run(flow: Flow, problems: Sequence[Problem], setup: Setup, client: WorkerClient) -> list[ScoreRow]:
    team = Team(setup.pool.workers, client, execution=setup.recipe.execution)
    method = Method.static(workflow(flow, setup.pool.names), flow.name)
    return asyncio.run(evaluate_method(method, problems, team, setup.recipe.evaluation))


# ── tables ───────────────────────────────────────────────────────────────────


def _tables(outcomes: Sequence[Outcome], others: Mapping[str, Score]) -> str:
    lines = ["| system | in-domain, % | unseen, % | USD a question |", "| --- | --- | --- | --- |"]
    for name in SYSTEMS:
        scores = [outcome.scores[name] for outcome in outcomes]
        usd = statistics.mean(score.usd for score in scores)
        seen, unseen = _over([score.seen for score in scores]), _over([score.unseen for score in scores])
        lines.append(f"| {name} | {seen} | {unseen} | {usd:.6f} |")
    lines += [f"| {name} | {100 * s.seen:.1f} | {100 * s.unseen:.1f} | {s.usd:.6f} |" for name, s in others.items()]
    lines += ["", "| Conductor, greedy, minus | in-domain, points | unseen, points |", "| --- | --- | --- |"]
    best = [outcome.scores[SYSTEMS[0]] for outcome in outcomes]
    paired = {SYSTEMS[1]: [outcome.scores[SYSTEMS[1]] for outcome in outcomes]}
    for name, theirs in {**paired, **{name: [other] * len(best) for name, other in others.items()}}.items():
        pairs = list(zip(best, theirs, strict=True))
        seen = _over([ours.seen - other.seen for ours, other in pairs])
        lines.append(f"| {name} | {seen} | {_over([ours.unseen - other.unseen for ours, other in pairs])} |")
    lines += [
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{' --- |' * len(HEAD)}",
    ]
    for made in outcomes:
        cold, trained = made.rows[SYSTEMS[1]], made.rows[SYSTEMS[0]]
        before, after = score(cold), score(trained)
        cells = (
            f"{100 * before.seen:.1f} → {100 * after.seen:.1f}",
            f"{100 * before.unseen:.1f} → {100 * after.unseen:.1f}",
            f"{100 * valid(cold):.1f} → {100 * valid(trained):.1f} %",
            f"{100 * right_if_valid(cold):.1f} → {100 * right_if_valid(trained):.1f} %",
            f"{entropy(cold):.2f} → {entropy(trained):.2f}",
            f"{statistics.mean(row.steps for row in trained):.2f}",
            f"{made.trained.reward_before:.3f} → {made.trained.reward_after:.3f}",
        )
        lines.append(f"| {made.seed} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _profile(outcomes: Sequence[Outcome]) -> str:
    """Where the time of a step of GRPO goes."""
    parts = ("seconds", "seconds/generation", "seconds/workers", "seconds/update")
    lines = ["| seed | steps | s a step | writing | workers | updating |", f"|{' --- |' * 6}"]
    for made in outcomes:
        for words, rows in ((f"first {ENDS}", made.curve[:ENDS]), (f"last {ENDS}", made.curve[-ENDS:])):
            cells = (f"{statistics.mean(row[name] for row in rows):.2f}" for name in parts)
            lines.append(f"| {made.seed} | {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _by_family(outcomes: Sequence[Outcome], families: Mapping[str, str]) -> str:
    """Families of questions, greedily: the cold start, the Conductor, and what it writes most often there."""
    cold, trained = (_families(outcomes, name, families) for name in (SYSTEMS[1], SYSTEMS[0]))
    lines = ["| family | cold start, % | Conductor, % | steps | its commonest workers, in order |", f"|{' --- |' * 5}"]
    for family, rows in trained.items():
        workers, times = Counter(", ".join(row.workers) for row in rows).most_common(1)[0]
        cells = (
            f"{100 * share(row.correct for row in cold[family]):.0f}",
            f"{100 * share(row.correct for row in rows):.0f}",
            f"{statistics.mean(row.steps for row in rows):.1f}",
            f"{workers or 'no workflow'} ({times / len(rows):.0%})",
        )
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _families(
    outcomes: Sequence[Outcome], system: str, families: Mapping[str, str]
) -> Mapping[str, Sequence[ScoreRow]]:
    """Family → a system's rows of all seeds, in the order of the benchmarks."""
    found: dict[str, list[ScoreRow]] = defaultdict(list)
    for outcome in outcomes:
        for row in outcome.rows[system]:
            found[families[row.problem_key]].append(row)
    return found


def _over(values: Sequence[float]) -> str:
    """Mean over the seeds, in per cent, ± its standard error."""
    error = f" ± {100 * statistics.stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{error}"
