"""Evaluate a Conductor on worker subsets before and after the adaptive stage.

The subsets are those of each size, named subsets, and subsets with a worker that the policy has not seen in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ops.benchmarks.registry import training_benchmarks
from ops.conductor.policy import PolicyCard
from ops.conductor.writer import LocalConductor, load_in_process
from ops.config import Setup, Worker, digest
from ops.config.studies import Subsets
from ops.core.async_run import run_async
from ops.core.errors import PodiumError
from ops.evaluation.arms import Arm
from ops.evaluation.method import Method
from ops.evaluation.runner import evaluate, evaluate_method
from ops.evaluation.stored_scores import scores_key, with_execution_code
from ops.evaluation.stored_studies import StudyInputs, read_all_questions, sample_questions
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import average_by_question, mean_accuracy
from ops.stages.study_context import StudyContext, find_finished_run, make_rows_once, train_on_subsets, train_policy
from ops.workers.client import WorkerClient
from ops.workers.providers import find_price
from ops.workflow.cards import WorkerCard, load_cards
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

if TYPE_CHECKING:
    import polars as pl

WorkerSubset = tuple[int, ...]
"""A worker subset, as the ordinals of the workers that are on offer."""


class PolicyOnSubsets(NamedTuple):
    """The run of a policy, and the worker subsets on which the policy is evaluated."""

    run: Path
    subsets: Sequence[WorkerSubset]


class PolicyPair(NamedTuple):
    """The two policies of a pair of arms, before and after the adaptive stage."""

    before: PolicyOnSubsets
    after: PolicyOnSubsets
    newcomer: Worker | None = None
    """A worker that neither policy was trained with; its ordinal follows those of the policies' workers."""


def check_recipe(setup: Setup, entry: Subsets) -> None:
    """Raise `PodiumError` for a recipe without an adaptive stage, or for a pool without the study's unseen worker."""
    if setup.recipe.adaptive is None:
        raise PodiumError(f"recipe {setup.recipe.name!r} has no adaptive section: there is nothing to compare")
    if entry.unseen and entry.unseen not in setup.pool.names:
        names = ", ".join(setup.pool.names)
        raise PodiumError(f"pool {setup.pool.name!r} has no {entry.unseen!r} to keep from training: {names}")


def make_arms(name: str, entry: Subsets, inputs: StudyInputs, context: StudyContext) -> list[Arm]:
    """Make two arms for each group of subsets: the policies before and after the adaptive stage.

    The groups are each size, each named subset, the subsets with the unseen worker, and each subset for which a
    Conductor of its own is trained.
    """
    bench, planned = SubsetEvaluator(name, inputs.setup, entry.questions, context), _plan_groups(entry, inputs, context)
    made: list[Arm] = []
    for label, sides in planned.items():
        context.report(len(made) // 2, len(planned), label)
        made += bench.make_arms(label, sides())
    return made


def _plan_groups(entry: Subsets, lab: StudyInputs, making: StudyContext) -> dict[str, Callable[[], PolicyPair]]:
    """Return label of a group → a function that returns its two policies, and trains those that are missing."""
    setup, seed = lab.setup, lab.setup.recipe.seed
    before, after = find_finished_run(lab, "conductor"), find_finished_run(lab, "adaptive_conductor")
    offered = PolicyCard.read(after / "policy").offered
    drawn = draw_subsets(len(offered), entry.per_size, seed)
    shared = {f"{size} of {len(offered)}": some for size, some in drawn.items()}
    shared[f"{len(offered)} of {len(offered)}"] = [tuple(range(len(offered)))]
    by_name = {worker.name: worker for worker in setup.pool.workers}
    usd = {name: find_price(worker, setup.pool_file).rates_on().output for name, worker in by_name.items()}
    for label, part in list_named_subsets([by_name[worker] for worker in offered], usd).items():
        shared[f"{label} ({len(part)} of {len(offered)})"] = [part]
    planned: dict[str, Callable[[], PolicyPair]] = {}
    for label, some in shared.items():
        planned[label] = lambda some=some: PolicyPair(PolicyOnSubsets(before, some), PolicyOnSubsets(after, some))  # type: ignore[misc]
    if entry.unseen:
        known, newcomer = len(setup.pool.names) - 1, setup.pool.worker(entry.unseen)
        size = max(1, known // 2)

        def with_newcomer() -> PolicyPair:
            """Policies trained without the worker, on subsets that include it."""
            some = [(*part, known) for part in draw_subsets(known, entry.per_size, seed)[size]]
            smaller = _with_workers(setup, [worker for worker in setup.pool.names if worker != newcomer.name])
            run = train_policy(smaller, lab.deepspeed, making)
            further = train_on_subsets(smaller, run, setup.recipe.adaptive, lab.deepspeed, making)
            return PolicyPair(PolicyOnSubsets(run, some), PolicyOnSubsets(further, some), newcomer)

        planned[f"{size} and {newcomer.name}, on which neither was trained"] = with_newcomer
    for part in drawn.get(len(offered) // 2, [])[: entry.retrained]:
        workers = [offered[ordinal] for ordinal in part]

        def alone(workers: Sequence[str] = workers, part: WorkerSubset = part) -> PolicyPair:
            own = train_policy(_without_subset_examples(_with_workers(setup, workers)), lab.deepspeed, making)
            return PolicyPair(PolicyOnSubsets(own, [tuple(range(len(part)))]), PolicyOnSubsets(after, [part]))

        planned[f"{', '.join(workers)} (before: a Conductor trained for them alone)"] = alone
    return planned


def _with_workers(setup: Setup, workers: Sequence[str]) -> Setup:
    """Return the setup with only these workers of the pool."""
    chosen = tuple(worker for worker in setup.pool.workers if worker.name in workers)
    return Setup(setup.workspace, setup.recipe, setup.pool.model_copy(update={"workers": chosen}))


def _without_subset_examples(setup: Setup) -> Setup:
    """Return the setup whose cold start has no examples on subsets of the pool."""
    recipe = setup.recipe
    cold_start = recipe.cold_start and recipe.cold_start.model_copy(update={"parts_share": 0.0})
    return replace(setup, recipe=recipe.model_copy(update={"cold_start": cold_start}))


def draw_subsets(workers: int, per_size: int, seed: int) -> dict[int, list[WorkerSubset]]:
    """Return size (1 to `workers` - 1) → distinct subsets of that size: `per_size` drawn by `seed`, or all if there are
    fewer."""
    drawn: dict[int, list[WorkerSubset]] = {}
    for size in range(1, workers):
        every = math.comb(workers, size)
        if every <= per_size:
            drawn[size] = list(combinations(range(workers), size))
            continue
        random, chosen = Random(f"{seed} {size}"), set[WorkerSubset]()
        while len(chosen) < per_size:
            chosen.add(tuple(sorted(random.sample(range(workers), size))))
        drawn[size] = sorted(chosen)
    return drawn


def list_named_subsets(workers: Sequence[Worker], output_usd: Mapping[str, float]) -> dict[str, WorkerSubset]:
    """Return name → worker subset: the workers with each tag, those without it, and the cheaper half.

    Equal subsets are returned once, under the first name. `output_usd` is worker name → USD per completion token. The
    cheaper half of an odd number of workers is rounded up.
    """
    every = range(len(workers))
    tags = dict.fromkeys(tag for worker in workers for tag in worker.tags)
    named = {f"{tag} only": tuple(i for i in every if tag in workers[i].tags) for tag in tags}
    named |= {f"none {tag}": tuple(i for i in every if tag not in workers[i].tags) for tag in tags}
    by_price = sorted(every, key=lambda i: output_usd[workers[i].name])
    named["the cheap half"] = tuple(sorted(by_price[: (len(workers) + 1) // 2]))
    known: dict[WorkerSubset, str] = {}
    for name, part in named.items():
        if 0 < len(part) < len(workers):
            known.setdefault(part, name)
    return {name: part for part, name in known.items()}


def add_worker(team: Team, worker: Worker, cards: Sequence[WorkerCard] = ()) -> Team:
    """Return the team with one more worker at the next ordinal.

    `cards` has the worker's description if the team has descriptions, and is empty otherwise. Raises `ValueError` if
    the worker is already in the team, or if the number of descriptions is wrong.
    """
    if worker.name in team.names:
        raise ValueError(f"worker {worker.name!r} is in the team")
    if len(cards) != bool(team.cards):
        raise ValueError(f"{len(cards)} cards for {worker.name!r}, in a team of {len(team.cards)} cards")
    return replace(team, workers=(*team.workers, worker), cards=(*team.cards, *cards))


class SubsetEvaluator:
    """Evaluates policies on worker subsets, with the same questions of each training benchmark, drawn by the recipe's
    seed."""

    def __init__(self, name: str, setup: Setup, per_benchmark: int, making: StudyContext) -> None:
        self._name, self.setup, self._making = name, setup, making
        names = training_benchmarks(setup.recipe.benchmarks)
        every = {
            benchmark: [each for each in read_all_questions(setup) if each.benchmark == benchmark]
            for benchmark in names
        }
        self._asked = sample_questions(
            [each for own in every.values() for each in own], per_benchmark, setup.recipe.seed
        )
        self._loaded: dict[Path, LocalConductor] = {}
        self._own: WorkerClient | None = None
        self._alone = {
            worker: mean_accuracy(average_by_question(self._solo_rows(worker)), names).mean
            for worker in setup.pool.names
        }

    def make_arms(self, label: str, sides: PolicyPair) -> list[Arm]:
        """Return the arms of both policies on their subsets, with the solo accuracy of the best worker of each
        subset."""
        known = PolicyCard.read(sides.after.run / "policy").offered
        known += (sides.newcomer.name,) if sides.newcomer else ()
        best = fmean(max(self._alone[known[ordinal]] for ordinal in part) for part in sides.after.subsets)
        facts = {"subsets": str(len(sides.after.subsets)), "best of them alone, %": f"{100 * best:.1f}"}
        before, after = (
            [self._subset_rows(side.run / "policy", part, sides.newcomer) for part in side.subsets]
            for side in (sides.before, sides.after)
        )
        other = f"{label}: before the stage"
        return [Arm(other, before), Arm(f"{label}: after it", after, {"minus before": other}, facts)]

    def _solo_rows(self, worker: str) -> pl.LazyFrame:
        """Return the rows of one worker that answers every question by itself."""
        recipe, pool = self.setup.recipe, self.setup.pool
        method = Method.static(Workflow.single(pool.names.index(worker)))

        def make() -> list[OutcomeRow]:
            whole = Team(pool.workers, self._client(), execution=recipe.execution)
            return run_async(evaluate_method(method, self._asked, whole, recipe.evaluation))

        no_policy = Path()
        key = {**scores_key(self.setup, no_policy, self._asked), "alone": worker}
        return make_rows_once(self.setup, self._name, with_execution_code(key), make)

    def _subset_rows(self, policy: Path, part: WorkerSubset, newcomer: Worker | None) -> pl.LazyFrame:
        recipe, data, texts = self.setup.recipe, self.setup.workspace.data, self.setup.workspace.texts
        renumbered = recipe.adaptive is not None and recipe.adaptive.reshuffle
        cards = load_cards(data, [newcomer.name]) if newcomer and PolicyCard.read(policy).cards else ()

        def make() -> list[OutcomeRow]:
            if policy not in self._loaded:
                self._loaded[policy] = load_in_process(policy)
            conductor = self._loaded[policy]
            team = conductor.card.build_team(self.setup.pool, texts, recipe.execution, self._client())
            team = team if newcomer is None else add_worker(team, newcomer, cards)
            team = team.restrict_to(part, renumbered=renumbered)
            return run_async(evaluate(conductor, self._asked, team, recipe.evaluation, seed=recipe.seed))

        key = {**scores_key(self.setup, policy, self._asked), "part": str(part), "renumbered": str(renumbered)}
        if newcomer is not None:
            key |= {"newcomer": newcomer.name, "card": digest([card.model_dump() for card in cards])}
        return make_rows_once(self.setup, self._name, with_execution_code(key), make)

    def _client(self) -> WorkerClient:
        if self._own is None:
            self._own = self._making.open_client(self.setup.with_account(self._name), "experiment")
        return self._own
