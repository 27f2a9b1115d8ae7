"""The evaluation of one recipe: score a policy, and the baselines that ask, on the benchmarks' questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.raw import evaluation_questions
from ops.config import Setup
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.evaluation.asking import evaluate_method
from ops.evaluation.method import Known, Method
from ops.evaluation.rounds import evaluate_in_rounds
from ops.evaluation.runner import ScoreRow, evaluate
from ops.evaluation.scores import at_prices, save_rows
from ops.evaluation.stored import score_file, scores_origin
from ops.evaluation.stored_baselines import Shelf, shelves
from ops.release.tracing import TraceSample
from ops.workers.client import WorkerClient
from ops.workflow.team import Team

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


def score_baselines(
    setup: Setup, client: WorkerClient, benchmarks: Sequence[str], on_progress: OnProgress | None = None
) -> dict[str, list[ScoreRow]]:
    """Let the recipe's baselines that ask learn from the mix and answer the questions of `benchmarks`.

    Baseline → its rows at the pool's prices. What is stored for the same pool, mix, questions and settings is not
    asked again. Raises `DataError`, `OverBudget`, `ConfigError`; a baseline's files change together or not at all.
    """
    every = evaluation_questions(setup.workspace, setup.recipe)
    questions_of = {name: every[name] for name in benchmarks if every.get(name)}
    return {shelf.entry.name: _score_baseline(shelf, client, questions_of, on_progress) for shelf in shelves(setup)}


def _score_baseline(
    shelf: Shelf, client: WorkerClient, questions_of: Mapping[str, Sequence[Problem]], on_progress: OnProgress | None
) -> list[ScoreRow]:
    try:
        return shelf.rows(questions_of)
    except DataError:  # none yet, or of something else
        pass
    setup, name = shelf.setup, shelf.entry.name
    settings = setup.recipe.evaluation
    team = Team(setup.pool.workers, client, setup.recipe.prompting, execution=setup.recipe.execution)

    def run(method: Method, problems: Sequence[Problem]) -> list[ScoreRow]:
        once = settings.model_copy(update={"repeats": 1})
        return at_prices(asyncio.run(evaluate_method(method, problems, team, once)), setup.pool)

    known = shelf.known
    method = shelf.entry.prepare(Known(team, known.problems, known.responses, setup.recipe.seed, run, known.few_shots))
    questions = [question for own in questions_of.values() for question in own]
    done, total = 0, len(questions) * settings.repeats

    def count(more: int) -> None:
        nonlocal done
        done += more
        if on_progress is not None:
            on_progress(done, total, name)

    rows = asyncio.run(evaluate_method(method, questions, team, settings, count))
    shelf.keep(rows, _detail(method, rows), questions_of)
    return at_prices(rows, setup.pool)


def _detail(method: Method, rows: Sequence[ScoreRow]) -> str:
    """What the column's head says; of a model that writes workflows also how many of its completions are any."""
    if method.author is None or not rows:
        return method.detail
    return f"{method.detail}, {sum(row.format_ok for row in rows) / len(rows):.0%} valid"
