"""The nightly evaluation: the champion on a rotating part of its questions, with new worker answers.

Cached answers would give the same result every night. Each night therefore has its own sample index in a separate
namespace, and an interrupted evaluation finds that night's answers in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from ops.benchmarks.store import evaluation_questions
from ops.config import Setup, Worker
from ops.core.problem import Problem
from ops.core.response import Message, Namespace, Response, Sample
from ops.core.running import run_async
from ops.evaluation.runner import evaluate
from ops.results.rows import OutcomeRow
from ops.results.statistics import Interval, score_interval
from ops.results.summary import Pairs
from ops.results.table import Rows, at_prices
from ops.workers.client import WorkerClient
from ops.workers.scheduling import Client


@dataclass(frozen=True)
class NightlyClient:
    """A client that uses one night's sample index, since a night evaluates each question once."""

    client: Client
    number: int

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        """Complete the call at the night's sample index. Raises `ValueError` if `sample` has an index other than 0."""
        asked = Sample.of(sample)
        if asked.index:
            raise ValueError(f"sample index {asked.index}: a night asks each question once")
        own = replace(asked, index=self.number, namespace=Namespace.NIGHTS)
        return await self.client.complete(worker, messages, sample=own)


def questions_of(setup: Setup, per_benchmark: int, night: int) -> dict[str, list[Problem]]:
    """Benchmark → questions of that night: consecutive parts of the evaluation, restarting after the last question."""
    chosen = {}
    for name, every in evaluation_questions(setup.workspace, setup.recipe).items():
        if every:
            start = night * per_benchmark % len(every)
            chosen[name] = [*every, *every][start : start + min(per_benchmark, len(every))]
    return chosen


@dataclass(frozen=True)
class Slice:
    """A night's rows, and their paired difference to the champion's earlier scores."""

    rows: Rows
    difference: Interval | None
    """None: no question was scored before."""
    questions: int


def evaluate_slice(
    setup: Setup, policy: Path, client: WorkerClient, before: Rows, per_benchmark: int, on: date
) -> Slice:
    """Evaluate the champion on the questions of day `on` with new worker answers.

    Only first rounds are run and compared with earlier scores. Raises `DataError`, `OverBudget` and `ConfigError`.
    """
    from ops.conductor.writer import load_conductor

    night = on.toordinal()
    rows: list[OutcomeRow] = []
    with closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor:
        for name, questions in questions_of(setup, per_benchmark, night).items():
            asked = setup.asked_on(name)
            once = asked.recipe.evaluation.model_copy(update={"repeats": 1})
            card, data, texts = conductor.card, setup.workspace.data, asked.workspace.texts
            team = card.with_newcomers(
                card.team(asked.pool, texts, asked.recipe.execution, NightlyClient(client, night)), asked.pool, data
            )
            rows += run_async(evaluate(conductor, questions, team, once, seed=setup.recipe.seed))
    priced = at_prices(rows, setup.pool)
    strata = Pairs.of(priced, before).strata()
    difference = score_interval(list(strata.values())) if strata else None
    return Slice(priced, difference, sum(map(len, strata.values())))
