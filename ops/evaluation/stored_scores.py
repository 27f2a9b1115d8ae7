"""The stored results of policies and of single workers: their files, and the keys of everything that they depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.graded import GRADER_KEY, graders_key, read_graded_responses
from ops.benchmarks.problem_files import questions_key, read_evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Pool, Setup, digest
from ops.core.errors import DataError
from ops.core.once import Key, add_code_version, check_inputs
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, load_responses, response_file
from ops.core.workspace import Workspace
from ops.evaluation.baseline import needs_every_worker
from ops.precaching.profiles import find_best_worker
from ops.precaching.stored_profiles import evaluation_folder, responses_key
from ops.results.table import concatenate_rows, reprice_rows, response_rows_as_scores, scan_responses, scan_rows
from ops.workers.pool import reprice_responses as responses_at_prices

if TYPE_CHECKING:
    import polars as pl

CONDUCTOR, COLD_START = "conductor", "cold_start"
"""The folders of score files below `Workspace.scores`."""


def read_policy_scores(setup: Setup, policy: Path, name: str, benchmarks: Sequence[str]) -> pl.LazyFrame:
    """Return the rows that `score_policy` stored for this policy, at the pool's prices.

    Raises `DataError` if they are missing, or if questions, workers or settings have changed since.
    """
    questions_of = read_evaluation_questions(setup.workspace, setup.recipe)
    tables = []
    for benchmark in benchmarks:
        asked, file = setup.for_benchmark(benchmark), score_file(setup.workspace, name, policy, benchmark)
        remedy = f"Materialize {'baselines' if name == COLD_START else 'benchmark_scores'} for {benchmark}"
        check_inputs(file, scores_key(asked, policy, questions_of[benchmark]), remedy)
        tables.append(reprice_rows(scan_rows(file), asked.pool))
    return concatenate_rows(tables)


def scores_key(setup: Setup, policy: Path, questions: Sequence[Problem]) -> Key:
    """Return the keys of everything that a policy's scores on a benchmark depend on.

    `setup` must be the result of `Setup.for_benchmark` for the benchmark.
    """
    return {
        "policy": policy_key(policy),
        "pool": setup.pool.answers_key,
        "questions": questions_key(questions),
        GRADER_KEY: graders_key(questions, setup),
        "settings": settings_key(
            setup, "repeats", "temperature", *(["vote"] if setup.recipe.evaluation.has_vote else [])
        ),
    }


def with_execution_code(key: Key, *modules: str) -> Key:
    """Return the key of rows with the version of the code that executes workflows, and of further modules.

    After a change of that code the next run executes the workflows again, with the stored completions and responses.
    """
    return add_code_version(key, "ops.evaluation.runner", "ops.conductor.writer", *modules)


def settings_key(setup: Setup, *names: str) -> str:
    """Return a hash of the named evaluation settings, the seed and the execution settings that can change answers."""
    evaluation, execution = setup.recipe.evaluation.model_dump(include=set(names)), setup.recipe.execution
    return digest([evaluation, setup.recipe.seed, execution.answer_settings])


def score_file(workspace: Workspace, name: str, policy: Path, benchmark: str) -> Path:
    """Return the path `scores/NAME/POLICY/BENCHMARK.parquet`, where POLICY is the policy's key."""
    return score_folder(workspace, name, policy) / f"{benchmark}.parquet"


def score_folder(workspace: Workspace, name: str, policy: Path) -> Path:
    """Return the folder of a policy's score files."""
    return workspace.scores / name / policy_key(policy)


# ── single workers ─────────────────────────────────────────────────────────────


def select_worker_rows(responses: Iterable[ResponseRow], worker: str) -> pl.LazyFrame:
    """Return the score rows of the named worker; empty if it has no responses."""
    return response_rows_as_scores(row for row in responses if row.worker == worker)


def list_solo_workers(setup: Setup) -> tuple[str, ...]:
    """Return the names of the workers whose own answers to the evaluation questions are needed.

    These are all workers of the pool if one of the recipe's baselines needs all of them. Otherwise it is the best
    single worker by the precached responses, with which the promotion gate compares the Conductor. Raises `DataError`
    if the best worker is needed and no responses are precached.
    """
    if needs_every_worker(setup.recipe.evaluation.baselines):
        return setup.pool.names
    folder = setup.workspace.data / "responses"
    precached = [row for row in read_graded_responses(folder) if row.worker in setup.pool.names]
    if not precached:
        raise DataError(folder, "", "has no responses from which to choose the best worker", "Precache first")
    return (find_best_worker(precached).worker,)


def read_solo_responses(setup: Setup, workers: Sequence[str]) -> list[ResponseRow]:
    """Read the own responses of these workers to the evaluation questions, at the prices of each benchmark's pool.

    Raises `DataError` if responses to a benchmark are missing or stale.
    """
    files = _list_response_files(setup, workers)
    return [row for file, pool in files for row in responses_at_prices(load_responses(file), pool)]


def read_worker_scores(setup: Setup, worker: str) -> pl.LazyFrame:
    """Return the score rows of a single worker's own answers. Raises the errors of `read_solo_responses`."""
    return concatenate_rows(
        reprice_rows(scan_responses(file), pool) for file, pool in _list_response_files(setup, [worker])
    )


def _list_response_files(setup: Setup, workers: Sequence[str]) -> list[tuple[Path, Pool]]:
    files = []
    setup = setup.for_opponents
    for name, questions in read_evaluation_questions(setup.workspace, setup.recipe).items():
        asked = setup.for_benchmark(name)
        for worker in workers if questions else ():
            file = response_file(evaluation_folder(setup.workspace), worker, name)
            key = responses_key(asked.pool.worker(worker), questions, asked.recipe.evaluation.repeats, asked)
            check_inputs(file, key, f"Materialize baselines for {name}")
            files.append((file, asked.pool))
    return files
