"""A Conductor on parts of its pool, before and after the adaptive stage: of every size, named, joined by a stranger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any, NamedTuple

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import Conductor, PolicyCard
from ops.config import Setup, Worker, digest
from ops.core.errors import PodiumError
from ops.evaluation.experiment import Findings
from ops.evaluation.experiment_report import bars
from ops.evaluation.reading import questions, sample, valid
from ops.evaluation.report import Columns, percent
from ops.evaluation.rows import ScoreRow
from ops.evaluation.statistics import MeanEstimate
from ops.evaluation.stored import scores_origin
from ops.evaluation.subsets import (
    Part,
    accuracy,
    difference,
    evaluate_alone,
    evaluate_parts,
    joined,
    named_parts,
    parts,
)
from ops.stages.making import Making, rows_once, trained, trained_further
from ops.workers.client import WorkerClient
from ops.workers.providers import worst_price
from ops.workflow.cards import load_cards
from ops.workflow.team import Team

NAME = "subsets"
HEAD = ["on offer", "parts", "before the stage, %", "valid before, %", "after it, %", "valid after, %",
        "the stage adds, points", "best of them alone, %"]  # fmt: skip


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


class Sides(NamedTuple):
    """What a row is of."""

    before: Side
    after: Side
    stranger: Worker | None = None
    """Stands behind the workers that the policies know."""


class Row(NamedTuple):
    """What the policies of both sides do, and what the best of the workers on offer does alone (with hindsight)."""

    label: str
    parts: int
    before: Sequence[Sequence[ScoreRow]]
    after: Sequence[Sequence[ScoreRow]]
    best: Sequence[float]


def check(setup: Setup, sampling: Sampling) -> None:
    """Raise `PodiumError` for a recipe without the stage, or a pool without the unseen worker."""
    if setup.recipe.adaptive is None:
        raise PodiumError(f"recipe {setup.recipe.name!r} has no adaptive section: there is nothing to compare")
    if sampling.unseen and sampling.unseen not in setup.pool.names:
        names = ", ".join(setup.pool.names)
        raise PodiumError(f"pool {setup.pool.name!r} has no {sampling.unseen!r} to keep from training: {names}")


def subsets(
    setup: Setup,
    before: Path,
    after: Path,
    sampling: Sampling,
    deepspeed: Mapping[str, Any] | None = None,
    making: Making | None = None,
) -> Findings:
    """A row a size; one a part that has a name; one with the unseen worker; one for each part that a Conductor is
    trained for. `before` and `after`: the runs of the stage and of the one before it.

    Without `making` what is stored. Raises as `check` does, `DataError` where something is missing, and as trainings
    and evaluations do.
    """
    check(setup, sampling)
    table, planned = Table(setup, sampling.per_benchmark, making), _planned(setup, before, after, sampling, deepspeed)
    rows: list[Row] = []
    for label, sides in planned.items():
        if making is not None:
            making.tell(len(rows), len(planned), label)
        rows.append(table.row(label, sides(making)))
    estimates: dict[str, dict[str, MeanEstimate]] = {
        fill(row.label, 40): {
            "before the stage": accuracy(row.before, table.names),
            "after it": accuracy(row.after, table.names),
        }
        for row in rows
    }
    unscorable = sum(each.unscorable for row in rows for scores in (*row.before, *row.after) for each in scores)
    said = f"{unscorable} rows of unreachable workers are left out." if unscorable else ""
    picture = bars(estimates, "right answers, in %")
    return Findings(Columns(HEAD, [table.cells(row) for row in rows]), Columns([], []), said, picture)


def _planned(
    setup: Setup, before: Path, after: Path, sampling: Sampling, deepspeed: Mapping[str, Any] | None
) -> dict[str, Callable[[Making | None], Sides]]:
    """Label of a row → what gives its sides, which may train what they need."""
    offered = PolicyCard.read(after / "policy").offered
    drawn = parts(len(offered), sampling.per_size, setup.recipe.seed)
    whole = {len(offered): [tuple(range(len(offered)))]}
    shared = {f"{size} of {len(offered)}": some for size, some in (drawn | whole).items()}
    by_name = {worker.name: worker for worker in setup.pool.workers}
    usd = {name: worst_price(worker, setup.pool_file)[1] for name, worker in by_name.items()}
    for label, part in named_parts([by_name[name] for name in offered], usd).items():
        shared[f"{label} ({len(part)} of {len(offered)})"] = [part]
    planned: dict[str, Callable[[Making | None], Sides]] = {}
    for label, some in shared.items():
        planned[label] = lambda _, some=some: Sides(Side(before, some), Side(after, some))  # type: ignore[misc]
    if sampling.unseen:
        known, stranger = len(setup.pool.names) - 1, setup.pool.worker(sampling.unseen)
        size = max(1, known // 2)
        some = [(*part, known) for part in parts(known, sampling.per_size, setup.recipe.seed)[size]]

        def with_stranger(making: Making | None) -> Sides:
            """Policies that were trained without the worker, on parts that the worker has joined."""
            smaller = _with(setup, [name for name in setup.pool.names if name != stranger.name])
            run = trained(smaller, deepspeed, making)
            further = trained_further(smaller, run, setup.recipe.adaptive, deepspeed, making)
            return Sides(Side(run, some), Side(further, some), stranger)

        planned[f"{size} and {stranger.name}, whom neither has met"] = with_stranger
    for part in drawn.get(len(offered) // 2, [])[: sampling.retrained]:
        workers = [offered[ordinal] for ordinal in part]

        def alone(making: Making | None, workers: Sequence[str] = workers, part: Part = part) -> Sides:
            own = trained(_taught_whole(_with(setup, workers)), deepspeed, making)
            return Sides(Side(own, [tuple(range(len(part)))]), Side(after, [part]))

        planned[f"{', '.join(workers)} (before: a Conductor trained for them alone)"] = alone
    return planned


def _with(setup: Setup, workers: Sequence[str]) -> Setup:
    """The same with these workers of the pool alone."""
    chosen = tuple(worker for worker in setup.pool.workers if worker.name in workers)
    return Setup(setup.workspace, setup.recipe, setup.pool.model_copy(update={"workers": chosen}))


def _taught_whole(setup: Setup) -> Setup:
    """The same without lessons on parts of the pool."""
    recipe = setup.recipe
    lessons = recipe.cold_start and recipe.cold_start.model_copy(update={"parts_share": 0.0})
    return replace(setup, recipe=recipe.model_copy(update={"cold_start": lessons}))


class Table:
    """Rows over the same questions: so many of each benchmark that is trained on, drawn by the recipe's seed."""

    def __init__(self, setup: Setup, per_benchmark: int, making: Making | None) -> None:
        self.setup = setup
        self.names = training_benchmarks(setup.recipe.benchmarks)
        every = {name: [problem for problem in questions(setup) if problem.benchmark == name] for name in self.names}
        self._asked = sample([each for own in every.values() for each in own], per_benchmark, setup.recipe.seed)
        self._making = making
        self._loaded: dict[Path, Conductor] = {}
        self._own: WorkerClient | None = None
        self._alone = {worker: accuracy([self._by(worker)], self.names).mean for worker in setup.pool.names}

    def row(self, label: str, sides: Sides) -> Row:
        """Both policies on their parts."""
        theirs, _ = self._scores(sides.before, sides.stranger)
        ours, best = self._scores(sides.after, sides.stranger)
        return Row(label, len(sides.after.some), theirs, ours, best)

    def cells(self, row: Row) -> list[str | int | float]:
        """As a table has it."""
        own: list[str] = []
        for runs in (row.before, row.after):
            share = fmean(valid(scores) for scores in runs)
            own += [percent(accuracy(runs, self.names)), f"{100 * share:.1f}"]
        added = percent(difference(row.after, row.before, self.names))
        return [row.label, str(row.parts), *own, added, f"{100 * fmean(row.best):.1f}"]

    def _by(self, worker: str) -> list[ScoreRow]:
        """What the worker gives alone."""
        recipe, pool = self.setup.recipe, self.setup.pool
        nobody_shown = recipe.prompting.model_copy(update={"cards": False})  # their answers need no prompt

        def make(making: Making) -> list[ScoreRow]:
            whole = Team(pool.workers, self._client(making), nobody_shown, execution=recipe.execution)
            return asyncio.run(evaluate_alone(self._asked, whole, recipe.evaluation, pool.names.index(worker)))

        nobody = Path()  # wrote it
        return self._once({**scores_origin(self.setup, nobody, self._asked), "alone": worker}, make)

    def _scores(self, side: Side, stranger: Worker | None) -> tuple[list[list[ScoreRow]], list[float]]:
        """What a policy does on each part, and what the best of its workers does alone there (with hindsight)."""
        names = PolicyCard.read(side.run / "policy").offered + ((stranger.name,) if stranger else ())
        best = [max(self._alone[names[ordinal]] for ordinal in part) for part in side.some]
        return [self._on(side.run / "policy", part, stranger) for part in side.some], best

    def _on(self, policy: Path, part: Part, stranger: Worker | None) -> list[ScoreRow]:
        recipe, data, texts = self.setup.recipe, self.setup.workspace.data, self.setup.workspace.texts
        renumbered = recipe.adaptive is not None and recipe.adaptive.reshuffle
        cards = load_cards(data, [stranger.name]) if stranger and PolicyCard.read(policy).cards else ()

        def make(making: Making) -> list[ScoreRow]:
            if policy not in self._loaded:
                self._loaded[policy] = Conductor.load(policy)
            conductor = self._loaded[policy]
            team = conductor.card.team(self.setup.pool, texts, recipe.execution, self._client(making))
            if stranger is not None:
                team = joined(team, stranger, cards)
            rows = evaluate_parts(
                conductor, self._asked, team, recipe.evaluation, [part], renumbered=renumbered, seed=recipe.seed
            )
            return asyncio.run(rows)[part]

        origin = {**scores_origin(self.setup, policy, self._asked), "part": str(part), "renumbered": str(renumbered)}
        if stranger is not None:
            origin |= {"stranger": stranger.name, "card": digest([card.model_dump() for card in cards])}
        return self._once(origin, make)

    def _once(self, origin: Mapping[str, str], make: Callable[[Making], list[ScoreRow]]) -> list[ScoreRow]:
        made = None if self._making is None else partial(make, self._making)
        return rows_once(self.setup, NAME, origin, made)

    def _client(self, making: Making) -> WorkerClient:
        if self._own is None:
            self._own = making.client(self.setup, "experiment", beside=NAME)
        return self._own
