"""Score files: where those of a policy lie, and what they are scores of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ops.benchmarks.store import evaluation_questions, questions_key
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.problem import Problem
from ops.core.rows import Origin, check_origin
from ops.core.workspace import Workspace
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.scores import at_prices, load_rows

CONDUCTOR, COLD_START = "conductor", "cold_start"
"""Folders of score files below `Workspace.scores`."""


def stored_scores(setup: Setup, policy: Path, name: str, benchmarks: Sequence[str]) -> list[OutcomeRow]:
    """The rows that `score_policy` stored for this very policy, at the pool's prices.

    Raises `DataError` when there are none, or they are of other questions, workers or settings.
    """
    questions_of = evaluation_questions(setup.workspace, setup.recipe)
    rows = []
    for benchmark in benchmarks:
        asked, file = setup.asked_on(benchmark), score_file(setup.workspace, name, policy, benchmark)
        remedy = f"Materialize {'baselines' if name == COLD_START else 'benchmark_scores'} for {benchmark}"
        check_origin(file, scores_origin(asked, policy, questions_of[benchmark]), remedy)
        rows += at_prices(load_rows(file), asked.pool)
    return rows


def scores_origin(setup: Setup, policy: Path, questions: Sequence[Problem]) -> Origin:
    """What a policy's scores on a benchmark are scores of: all that can change them, in the setup `asked_on` it."""
    return {
        "policy": policy_key(policy),
        "pool": setup.pool.answers_key,
        "questions": questions_key(questions),
        "settings": settings_key(setup, "repeats", "temperature"),
    }


def settings_key(setup: Setup, *names: str) -> str:
    """Hash of these settings of the evaluation, and of all else in the recipe that changes what is answered."""
    evaluation, execution = setup.recipe.evaluation.model_dump(include=set(names)), setup.recipe.execution
    return digest([evaluation, setup.recipe.seed, execution.what_answers_depend_on])


def score_file(workspace: Workspace, name: str, policy: Path, benchmark: str) -> Path:
    """`scores/NAME/POLICY/BENCHMARK.parquet`, POLICY the policy's key."""
    return workspace.scores / name / policy_key(policy) / f"{benchmark}.parquet"
