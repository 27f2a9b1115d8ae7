"""The evaluation of one recipe: score a policy on the benchmarks' questions, then bring all systems together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ops.benchmarks.raw import evaluation_questions
from ops.config import Setup
from ops.evaluation.runner import ScoreRow, evaluate
from ops.evaluation.scores import at_prices, save_rows
from ops.evaluation.stored import score_file, scores_origin
from ops.release.tracing import TraceSample
from ops.workers.client import WorkerClient

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

    Benchmarks without questions are left out. A sample of the executions goes to MLflow as traces.
    Raises `DataError`, `OverBudget`, `ConfigError`;
    then no file of `name` changes.
    """
    workspace, recipe = setup.workspace, setup.recipe
    from ops.conductor.policy import Conductor
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
            [setup.pool.worker(worker) for worker in card.offered],
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
            origin = scores_origin(setup, policy, asked[benchmark])
            save_rows(own, score_file(workspace, name, policy, benchmark), origin=origin)
    sample.export(workspace, name)
    return {benchmark: at_prices(own, setup.pool) for benchmark, own in found.items() if own}
