"""The evaluation of one recipe: score a policy on the benchmarks' questions, then bring all systems together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.raw import evaluation_questions
from ops.config import Setup
from ops.core.problem import Problem
from ops.evaluation.rounds import evaluate_in_rounds
from ops.evaluation.runner import ScoreRow, evaluate
from ops.evaluation.scores import at_prices, save_rows
from ops.evaluation.stored import score_file, scores_origin
from ops.release.tracing import TraceSample
from ops.workers.client import WorkerClient

if TYPE_CHECKING:
    from ops.conductor.rollout import Rollout
    from ops.conductor.rounds import RecursiveRollout

OnProgress = Callable[[int, int, str], None]


def score_policy(
    setup: Setup,
    policy: Path,
    name: str,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
) -> dict[str, list[ScoreRow]]:
    """Score the policy in folder `policy` into `scores/NAME/POLICY/BENCHMARK.parquet`; rows by benchmark.

    A policy that was trained to work in rounds does so, within what its card says. Benchmarks without questions are
    left out. A sample of the executions goes to MLflow as traces.
    Raises `DataError`, `OverBudget`, `ConfigError`;
    then no file of `name` changes.
    """
    workspace, recipe = setup.workspace, setup.recipe
    from ops.conductor.writer import load_conductor

    questions_of = evaluation_questions(workspace, recipe)
    questions = [question for benchmark in benchmarks for question in questions_of.get(benchmark, ())]
    sample, done = TraceSample(recipe.execution.traces), 0

    def count(rollouts: Sequence[Rollout | RecursiveRollout], problems: Sequence[Problem]) -> None:
        nonlocal done
        sample.take(rollouts, problems)
        done += len(rollouts)
        if on_progress is not None:
            on_progress(done, len(questions) * recipe.evaluation.repeats, name)

    settings = recipe.evaluation
    with closing(load_conductor(policy, settings.writer)) as conductor:
        team, limits = conductor.card.team(setup.pool, workspace.data, recipe.execution, client), conductor.card.rounds
        if limits is None:
            scoring = evaluate(conductor, questions, team, settings, seed=recipe.seed, on_rollouts=count)
        else:
            scoring = evaluate_in_rounds(
                conductor, questions, team, settings, limits, seed=recipe.seed, fits=conductor.fits, on_rollouts=count
            )
        rows = asyncio.run(scoring)
    scores = {benchmark: [row for row in rows if row.benchmark == benchmark] for benchmark in benchmarks}
    for benchmark, own in scores.items():
        if own:
            origin = scores_origin(setup, policy, questions_of[benchmark])
            save_rows(own, score_file(workspace, name, policy, benchmark), origin=origin)
    sample.export(workspace, name)
    return {benchmark: at_prices(own, setup.pool) for benchmark, own in scores.items() if own}
