"""What a plan will cost the workers' account, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ops.benchmarks.registry import training_benchmarks
from ops.benchmarks.store import evaluation_questions
from ops.config import Setup, Snapshot, load_retraining
from ops.core.errors import DataError
from ops.core.rows import ResponseRow, load_responses
from ops.evaluation.stored import CONDUCTOR
from ops.planning import lengths
from ops.planning.cost import StageCost, Stages
from ops.planning.prices import NOTHING, Span
from ops.planning.stored import Left, share_of_run, unscored
from ops.precaching.estimate import Ask, Share, cost_estimate, measured_usage, precache_asks
from ops.precaching.precache import solo_messages
from ops.precaching.stored import Cell
from ops.retraining.plan import NEVER, Plan
from ops.retraining.probes import Record, precached, tonight
from ops.retraining.slices import questions_of
from ops.retraining.standing import decided
from ops.retraining.start import stored_fine_tuning
from ops.spending.money import usd
from ops.stages.responses import estimate_responses
from ops.training.run.plan import RunPlan
from ops.workers.client import WorkerClient


@dataclass(frozen=True)
class Part:
    """One step of a plan: USD, low, expected and at most; `conditional`: it may not come to it."""

    name: str
    what: str
    usd: Span
    conditional: bool = False


@dataclass(frozen=True)
class Estimate:
    """The parts, in order."""

    parts: tuple[Part, ...] = ()

    @property
    def usd(self) -> Span:
        """All of them together, training included."""
        return reduce(Span.plus, (part.usd for part in self.parts), NOTHING)

    def __str__(self) -> str:
        """One line, for a run's tag."""
        if not self.parts:
            return "nothing to pay: no worker is asked"
        listed = ", ".join(
            f"{part.name} {usd(part.usd.expected)}{' if it comes to that' * part.conditional}" for part in self.parts
        )
        return f"about {usd(self.usd.expected)}, at most {usd(self.usd.high)} ({listed})"


def estimate(setup: Setup, plan: Plan, client: WorkerClient, snapshot: Snapshot | None = None) -> Estimate:
    """What executing the plan costs beyond what is stored: no call is made. Raises `DataError`, `ConfigError`.

    `snapshot`: of the change, which says whose scores, decision and training may be stored; None: none of them is.
    """
    if not plan.evaluate:
        return Estimate()
    stored = _stored(setup, snapshot)
    priced = stages(setup, Left(evaluation=stored.standing))
    parts = []
    if plan.precache:
        cells = [Cell(name, each) for name in plan.precache for each in training_benchmarks(setup.recipe.benchmarks)]
        column = estimate_responses(setup, client, cells).total
        parts.append(Part("precaching", f"{column.to_make:,} answers to the shortlist", _span(column)))
        alone = _alone(setup, plan.precache, client)
        parts.append(Part("alone", f"{alone.to_make:,} answers to the evaluation", _span(alone)))
    once = one_policy(setup, priced.evaluation())
    parts.append(Part("evaluation", once.what, Span(0.0, once.usd.expected, once.usd.high)))
    if plan.fine_tune != NEVER and not stored.holds:
        grpo = setup.recipe.fine_tune.grpo(setup.recipe.grpo)
        tuned = replace(setup, recipe=setup.recipe.model_copy(update={"grpo": grpo}))
        training = stages(tuned, Left(training=stored.training)).training()
        again = one_policy(setup, stages(setup, Left(evaluation=stored.tuned)).evaluation())
        parts.append(Part("fine-tuning", training.what, training.usd, conditional=True))
        parts.append(Part("its evaluation", again.what, again.usd, conditional=True))
    return Estimate(tuple(parts))


class _Stored(NamedTuple):
    """What a change of the pool has led to already; the shares are those that are left."""

    standing: Mapping[str, float] = MappingProxyType({})
    """By benchmark: the champion on the pool as it is."""
    holds: bool = False
    """Whether it was decided that no training follows."""
    training: float = 1.0
    tuned: Mapping[str, float] = MappingProxyType({})
    """By benchmark: the fine-tuned policy."""


def _stored(setup: Setup, snapshot: Snapshot | None) -> _Stored:
    if snapshot is None or snapshot.change is None:
        return _Stored()
    questions = evaluation_questions(setup.workspace, setup.recipe)

    def scores(run: Path) -> dict[str, float]:
        missing = set(unscored(setup, questions, run / "policy", CONDUCTOR))
        return {name: float(name in missing) for name in questions}

    standing = scores(setup.workspace.runs / snapshot.change.policy)
    try:
        made = decided(setup.workspace, snapshot.model_copy(update={"conductor": "champion"}).key)
    except DataError:  # not judged yet
        return _Stored(standing)
    if not made.fine_tune:
        return _Stored(standing, holds=True)
    run = stored_fine_tuning(setup, snapshot.change, snapshot.deepspeed)
    if run is None:
        return _Stored(standing)
    return _Stored(standing, training=share_of_run(run, RunPlan.read(run).recipe.grpo.steps), tuned=scores(run))


def probing(setup: Setup, client: WorkerClient) -> Estimate:
    """What the next round of probes costs: no call is made. Raises `DataError`, `ConfigError`."""
    settings = load_retraining(setup.workspace.config).probing
    asks = []
    for worker in setup.pool.workers:
        if precached(setup, worker):
            round_ = tonight(setup, worker, Record.read(setup.workspace, worker), settings)
            asks += [
                Ask(worker, problem.benchmark, solo_messages(problem), sample, problem.grader)
                for problem, sample in {*round_.references, *round_.probes}
            ]
    usages = measured_usage(_measured(setup), client.ledger)
    share = cost_estimate(asks, client.cache, usages, pool_file=setup.pool_file).total
    return Estimate((Part("probes", f"{share.to_make:,} answers", _span(share)),))


def slice_of(setup: Setup, per_benchmark: int) -> Estimate:
    """What one night's evaluation costs: every workflow's workers are asked. Raises `ConfigError`."""
    questions = sum(map(len, questions_of(setup, per_benchmark, 0).values()))
    return Estimate((Part("evaluation", f"{questions:,} questions", stages(setup).workflow_usd().times(questions)),))


def stages(setup: Setup, stored: Left | None = None) -> Stages:
    """The stages of the recipe, priced from what was measured. Raises `ConfigError` for a worker without a price."""
    rows = _measured(setup)
    return Stages(setup, lengths.lengths(setup, rows), lengths.questions(setup.workspace, setup.recipe), rows, stored)


def one_policy(setup: Setup, evaluation: StageCost) -> StageCost:
    """Of a stage that evaluates the policy before and after GRPO, one of the two."""
    if setup.recipe.cold_start is None:
        return evaluation
    half = evaluation.usd.times(0.5)
    return replace(evaluation, usd=half, calls=evaluation.calls.times(0.5), what=evaluation.what.split(",")[0])


def _measured(setup: Setup) -> list[ResponseRow]:
    try:
        return load_responses(setup.workspace.data / "responses")
    except DataError:  # precaching says so, and makes them again
        return []


def _alone(setup: Setup, workers: Sequence[str], client: WorkerClient) -> Share:
    asks: list[Ask] = []
    for name, questions in evaluation_questions(setup.workspace, setup.recipe).items():
        asked = setup.asked_on(name)
        chosen = [asked.pool.worker(worker) for worker in workers if worker in asked.pool.names]
        asks += precache_asks(questions, chosen, asked.recipe.evaluation.repeats)
    usages = measured_usage(_measured(setup), client.ledger)
    return cost_estimate(asks, client.cache, usages, pool_file=setup.pool_file).total


def _span(share: Share) -> Span:
    return Span(share.expected_usd, share.expected_usd, share.worst_usd)
