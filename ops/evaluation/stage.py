"""The evaluation of one recipe: score a policy on the benchmarks' questions, then bring all systems together.

What belongs here: which rows lie where, what they are scores of, and the functions that the Dagster assets
call. What does not: scoring (`runner`), asking workers alone (`ops.workers.stage`), tables (`report`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ops.benchmarks.stage import evaluation_questions
from ops.config import Pool, Recipe, digest
from ops.evaluation.runner import ScoreRow, evaluate
from ops.evaluation.scores import at_prices, load_rows, save_rows
from ops.origin import Origin, check_origin
from ops.policy import policy_key
from ops.problem import Problem
from ops.tracing import TraceSample
from ops.workers.client import WorkerClient
from ops.workers.stage import questions_key
from ops.workspace import Workspace

CONDUCTOR, COLD_START = "conductor", "cold_start"
"""Folders of score files below `Workspace.scores`."""
OnProgress = Callable[[int, int, str], None]


def score_policy(
    workspace: Workspace,
    recipe: Recipe,
    pool: Pool,
    policy: Path,
    name: str,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
) -> dict[str, list[ScoreRow]]:
    """Score the policy in folder `policy` into `scores/NAME/POLICY/BENCHMARK.parquet`; rows by benchmark.

    Benchmarks without questions are left out. A sample of the executions goes to MLflow as traces.
    Raises `DataError`, `OverBudget`, `ConfigError`;
    then no file of `name` changes.
    """
    from ops.policy import Conductor
    from ops.workflow.prompt import load_few_shots

    conductor = Conductor.load(policy)
    card = conductor.card
    asked = evaluation_questions(workspace, recipe)
    questions = [question for benchmark in benchmarks for question in asked.get(benchmark, ())]
    sample = TraceSample(recipe.execution.traces)
    rows = asyncio.run(
        evaluate(
            conductor,
            questions,
            [pool.worker(worker) for worker in card.offered],
            client,
            recipe.evaluation,
            card.prompting,
            (lambda done, total: on_progress(done, total, name)) if on_progress else None,
            few_shots=load_few_shots(workspace.data, card.prompting.few_shots),
            cards=card.cards,
            seed=recipe.seed,
            max_tokens=card.max_completion_tokens,
            execution=recipe.execution,
            on_rollouts=sample.take,
        )
    )
    found = {benchmark: [row for row in rows if row.benchmark == benchmark] for benchmark in benchmarks}
    for benchmark, own in found.items():
        if own:
            origin = scores_origin(recipe, pool, policy, asked[benchmark])
            save_rows(own, score_file(workspace, name, policy, benchmark), origin=origin)
    sample.export(workspace, name)
    return {benchmark: at_prices(own, pool) for benchmark, own in found.items() if own}


def stored_scores(
    workspace: Workspace, recipe: Recipe, pool: Pool, policy: Path, name: str, benchmarks: Sequence[str]
) -> list[ScoreRow]:
    """The rows that `score_policy` stored for this very policy, at the pool's prices.

    Raises `DataError` when there are none, or they are of other questions, workers or settings.
    """
    asked = evaluation_questions(workspace, recipe)
    rows = []
    for benchmark in benchmarks:
        file = score_file(workspace, name, policy, benchmark)
        remedy = f"Materialize {'baselines' if name == COLD_START else 'benchmark_scores'} for {benchmark}"
        check_origin(file, scores_origin(recipe, pool, policy, asked[benchmark]), remedy)
        rows += load_rows(file)
    return at_prices(rows, pool)


def scores_origin(recipe: Recipe, pool: Pool, policy: Path, questions: Sequence[Problem]) -> Origin:
    """What a policy's scores on a benchmark are scores of: all that can change them."""
    return {
        "policy": policy_key(policy),
        "pool": pool.answers_key,
        "questions": questions_key(questions),
        "settings": digest([
            recipe.evaluation.model_dump(include={"repeats", "temperature"}),
            recipe.seed,
            recipe.execution.what_answers_depend_on,
        ]),
    }  # fmt: skip


def score_file(workspace: Workspace, name: str, policy: Path, benchmark: str) -> Path:
    """`scores/NAME/POLICY/BENCHMARK.parquet`, POLICY the policy's key."""
    return workspace.scores / name / policy_key(policy) / f"{benchmark}.parquet"
