"""Score files of policies: their paths, and the key of everything that the scores depend on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ops.benchmarks.graded import GRADER, graders_key
from ops.benchmarks.store import evaluation_questions, questions_key
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.once import Key, check_made, with_code
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.scores import StoredRows

CONDUCTOR, COLD_START = "conductor", "cold_start"
"""The folders of score files below `Workspace.scores`."""


def stored_scores(setup: Setup, policy: Path, name: str, benchmarks: Sequence[str]) -> StoredRows:
    """Return the rows that `score_policy` stored for this policy, at the pool's prices.

    Raises `DataError` if they are missing, or if questions, workers or settings have changed since.
    """
    questions_of = evaluation_questions(setup.workspace, setup.recipe)
    files = []
    for benchmark in benchmarks:
        asked, file = setup.asked_on(benchmark), score_file(setup.workspace, name, policy, benchmark)
        remedy = f"Materialize {'baselines' if name == COLD_START else 'benchmark_scores'} for {benchmark}"
        check_made(file, scores_key(asked, policy, questions_of[benchmark]), remedy)
        files.append((file, asked.pool))
    return StoredRows(files)


def scores_key(setup: Setup, policy: Path, questions: Sequence[Problem]) -> Key:
    """Return the keys of everything that a policy's scores on a benchmark depend on.

    `setup` must be the result of `Setup.asked_on` for the benchmark.
    """
    return {
        "policy": policy_key(policy),
        "pool": setup.pool.answers_key,
        "questions": questions_key(questions),
        GRADER: graders_key(questions, setup),
        "settings": settings_key(setup, "repeats", "temperature", *(["vote"] if setup.recipe.evaluation.votes else [])),
    }


def with_player(key: Key, *modules: str) -> Key:
    """Return the key of rows with the version of the code that plays questions, and of further modules.

    After a change of that code the next run plays the questions again, with the stored completions and responses.
    """
    return with_code(key, "ops.evaluation.runner", "ops.conductor.writer", *modules)


def settings_key(setup: Setup, *names: str) -> str:
    """Return a hash of the named evaluation settings, the seed and the execution settings that can change answers."""
    evaluation, execution = setup.recipe.evaluation.model_dump(include=set(names)), setup.recipe.execution
    return digest([evaluation, setup.recipe.seed, execution.what_answers_depend_on])


def score_file(workspace: Workspace, name: str, policy: Path, benchmark: str) -> Path:
    """Return the path `scores/NAME/POLICY/BENCHMARK.parquet`, where POLICY is the policy's key."""
    return score_folder(workspace, name, policy) / f"{benchmark}.parquet"


def score_folder(workspace: Workspace, name: str, policy: Path) -> Path:
    """Return the folder of a policy's score files."""
    return workspace.scores / name / policy_key(policy)
