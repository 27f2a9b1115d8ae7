"""What a Conductor does with parts of its pool, before and after the adaptive stage, as a table in docs/training.md."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from assets.adaptive_conductor import adaptive_run
from assets.conductor import run_folder
from assets.resources import Podium, servers
from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import Conductor
from ops.config import Setup, Worker
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.report import percent
from ops.evaluation.runner import ScoreRow
from ops.evaluation.subsets import Part, accuracies_alone, accuracy, difference, evaluate_parts, joined, parts
from ops.precaching.opening import open_client
from ops.training.run.plan import write_run
from ops.workflow.cards import load_cards
from ops.workflow.team import Team
from pipelines.ablations import finished, trained
from pipelines.pages import write_between
from pipelines.run import live
from pipelines.seeds import questions, valid

FILE = Path("docs") / "training.md"
MARK = "<!-- made by `podium subsets` -->"
HEAD = ("recipe", "on offer", "parts", "before the stage, %", "valid, %", "after it, %", "valid, %",
        "the stage adds, points", "best of them alone, %")  # fmt: skip


class Sampling(NamedTuple):
    """What is measured of a recipe."""

    per_size: int
    """Parts of each size."""
    per_benchmark: int
    """Questions of each benchmark that is trained on."""
    unseen: str = ""
    """A worker whom the policies of one row have never met; empty: no such row."""
    retrained: int = 0
    """Parts of the middle size that a Conductor of their own is trained for."""


class Side(NamedTuple):
    """A run's policy, on these parts of its workers."""

    run: Path
    some: Sequence[Part]


def write_table(workspace: Workspace, recipes: Sequence[str], seed: int, sampling: Sampling) -> Path:
    """Live each recipe, measure its policies on parts of the pool, and write the table between its marks.

    Raises `PodiumError` for a recipe without the stage or a pool without the unseen worker, and where a training ends
    without a result.
    """
    podiums = [Podium(root=str(workspace.root), recipe=recipe, seed=seed) for recipe in recipes]
    for podium in podiums:
        setup = podium.load()
        if setup.recipe.adaptive is None:
            raise PodiumError(f"recipe {podium.recipe!r} has no adaptive section: there is nothing to compare")
        if sampling.unseen and sampling.unseen not in setup.pool.names:
            raise PodiumError(f"pool {setup.pool.name!r} has no {sampling.unseen!r}: {', '.join(setup.pool.names)}")
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    for podium in podiums:
        live(workspace, str(podium.recipe), seed)
        lines += [f"| {podium.recipe} | {' | '.join(row)} |" for row in rows(podium, sampling)]
        print("\n".join(lines), flush=True)
        write_between(workspace.root / FILE, MARK, "\n".join(lines) + "\n")
    return FILE


def rows(podium: Podium, sampling: Sampling) -> list[tuple[str, ...]]:
    """A row a size; one with the unseen worker; one for each part that a Conductor is trained for."""
    setup, deepspeed = podium.load(), podium.snapshot().deepspeed
    with servers(setup):
        before, after = run_folder(podium), adaptive_run(podium)
        table = Table(setup, sampling.per_benchmark)
        offered = Conductor.load(after / "policy").card.offered
        drawn = parts(len(offered), sampling.per_size, setup.recipe.seed)
        made = [
            table.row(f"{size} of {len(offered)}", Side(before, some), Side(after, some))
            for size, some in [*drawn.items(), (len(offered), [tuple(range(len(offered)))])]
        ]
        if sampling.unseen:
            made.append(_unseen(table, setup.pool.worker(sampling.unseen), sampling.per_size, deepspeed))
        for part in drawn.get(len(offered) // 2, [])[: sampling.retrained]:
            workers = [offered[ordinal] for ordinal in part]
            own = trained(_with(setup, workers), deepspeed)
            label = f"{', '.join(workers)} (before: a Conductor trained for them alone)"
            made.append(table.row(label, Side(own, [tuple(range(len(part)))]), Side(after, [part])))
    return made


def _unseen(table: Table, stranger: Worker, per_size: int, deepspeed: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Policies that were trained without the worker, on parts that the worker has joined."""
    setup = table.setup
    known = [name for name in setup.pool.names if name != stranger.name]
    smaller = _with(setup, known)
    before = trained(smaller, deepspeed)
    after = finished(write_run(smaller, before / "policy", deepspeed, setup.recipe.adaptive))
    size = max(1, len(known) // 2)
    some = [(*part, len(known)) for part in parts(len(known), per_size, setup.recipe.seed)[size]]
    label = f"{size} and {stranger.name}, whom neither has met"
    return table.row(label, Side(before, some), Side(after, some), stranger)


def _with(setup: Setup, workers: Sequence[str]) -> Setup:
    """The same with these workers of the pool alone."""
    chosen = tuple(worker for worker in setup.pool.workers if worker.name in workers)
    return Setup(setup.workspace, setup.recipe, setup.pool.model_copy(update={"workers": chosen}))


class Table:
    """Rows over the same questions: so many of each benchmark that is trained on, drawn by the recipe's seed."""

    def __init__(self, setup: Setup, per_benchmark: int) -> None:
        self.setup = setup
        self._client = open_client(setup, "evaluation")
        self._names = training_benchmarks(setup.recipe.benchmarks)
        self._asked: list[Problem] = []
        for name in self._names:
            every = [problem for problem in questions(setup) if problem.benchmark == name]
            self._asked += Random(setup.recipe.seed).sample(every, min(per_benchmark, len(every)))
        whole = Team(setup.pool.workers, self._client, setup.recipe.prompting, execution=setup.recipe.execution)
        alone = asyncio.run(accuracies_alone(self._asked, whole, setup.recipe.evaluation, self._names))
        self._alone = dict(zip(setup.pool.names, alone, strict=True))

    def row(self, label: str, before: Side, after: Side, stranger: Worker | None = None) -> tuple[str, ...]:
        """Both policies on their parts, with the `stranger` behind their own workers where there is one."""
        theirs, _ = self._scores(before, stranger)
        ours, best = self._scores(after, stranger)
        return (
            label,
            str(len(after.some)),
            *self._cells(theirs),
            *self._cells(ours),
            percent(difference(ours, theirs, self._names)),
            f"{100 * fmean(best):.1f}",
        )

    def _cells(self, runs: Sequence[Sequence[ScoreRow]]) -> tuple[str, str]:
        share = fmean(valid(scores) for scores in runs)
        return percent(accuracy(runs, self._names)), f"{100 * share:.1f}"

    def _scores(self, side: Side, stranger: Worker | None) -> tuple[list[list[ScoreRow]], list[float]]:
        """What a policy does on each part, and what the best of its workers does alone there (with hindsight)."""
        recipe, workspace = self.setup.recipe, self.setup.workspace
        conductor = Conductor.load(side.run / "policy")
        team = conductor.card.team(self.setup.pool, workspace.data, recipe.execution, self._client)
        if stranger is not None:
            team = joined(team, stranger, load_cards(workspace.data, [stranger.name]) if team.cards else ())
        renumbered = recipe.adaptive is not None and recipe.adaptive.reshuffle
        scores = asyncio.run(
            evaluate_parts(
                conductor, self._asked, team, recipe.evaluation, side.some, renumbered=renumbered, seed=recipe.seed
            )
        )
        return list(scores.values()), [max(self._alone[team.names[i]] for i in part) for part in side.some]
