"""The data stages `worker_responses` and `worker_profiles`, and the workers' answers to evaluation questions.

What belongs here: the functions that the DVC stages and the Dagster assets call: which
problems go to which worker, and where the rows lie. What does not: asking (precache,
client) and arithmetic (profiles).
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.stage import evaluation_questions
from ops.benchmarks.store import read_problems, write_text
from ops.config import TRAINING_BENCHMARKS, Pool, Recipe
from ops.problem import Problem
from ops.workers.cache import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.ledger import Ledger
from ops.workers.precache import ResponseRow, load_responses, precache, response_file, write_responses
from ops.workers.profiles import Profile, profile, signal_forecast
from ops.workspace import Workspace

OnProgress = Callable[[int, int, str], None]


class Cell(NamedTuple):
    """One partition of the responses."""

    worker: str
    benchmark: str


class Profiles(NamedTuple):
    """What `data/profiles.json` holds: a profile per worker, and the forecast share of groups with signal."""

    workers: list[Profile]
    forecast: float


def open_client(workspace: Workspace, recipe: Recipe, pool: Pool, purpose: str) -> WorkerClient:
    """A client on the checkout's cache and ledger; recipe, seed and pool name the run that its cap bounds."""
    return WorkerClient(
        ResponseCache(workspace.cache),
        Ledger(workspace.ledger),
        purpose,
        run=f"{recipe.name}-{recipe.seed}-{pool.fingerprint}",
        cap_usd=recipe.budget.run_usd,
        month_cap_usd=recipe.budget.month_usd,
        pool_file=workspace.config / "pools" / f"{recipe.pool}.yaml",
    )


def materialize_responses(
    workspace: Workspace,
    recipe: Recipe,
    pool: Pool,
    client: WorkerClient,
    cells: Iterable[Cell] | None = None,
    on_progress: OnProgress | None = None,
) -> dict[Cell, list[ResponseRow]]:
    """`data/shortlist.jsonl` → `data/responses/WORKER/BENCHMARK.parquet` for the `cells` (None: all).

    Files of workers that the pool lacks go. Raises `DataError`, `OverBudget`, `ConfigError`;
    then no file changes, and what was answered is in the cache.
    """
    shortlisted = _by_benchmark(read_problems(workspace.data / "shortlist.jsonl"))
    wanted = [Cell(w, b) for w in pool.names for b in TRAINING_BENCHMARKS] if cells is None else list(cells)
    folder = workspace.data / "responses"
    rows = _ask(shortlisted, pool, wanted, client, recipe.precaching.samples, on_progress)
    for cell in wanted:
        write_responses(rows[cell], response_file(folder, *cell))
    for stale in folder.iterdir():
        if stale.is_dir() and stale.name not in pool.names:
            shutil.rmtree(stale)
    return rows


def materialize_profiles(workspace: Workspace, recipe: Recipe) -> Profiles:
    """`data/responses` → `data/profiles.json`. Raises `DataError`."""
    rows = load_responses(workspace.data / "responses")
    found = Profiles(profile(rows), signal_forecast(rows, recipe.grpo.rollouts_per_question))
    text = json.dumps(
        {"workers": [one.as_row() for one in found.workers], "signal_forecast": found.forecast},
        indent=1,
        ensure_ascii=False,
    )
    write_text(workspace.data / "profiles.json", text + "\n")
    return found


def evaluation_folder(workspace: Workspace) -> Path:
    """Where the workers' own answers to the evaluation questions lie: baselines, never training data."""
    return workspace.scores / "workers"


def answer_evaluation(
    workspace: Workspace,
    recipe: Recipe,
    pool: Pool,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
) -> dict[Cell, list[ResponseRow]]:
    """Let every worker answer the questions of `benchmarks` alone; one file per worker and benchmark.

    As many samples as the Conductor gets repeats. Raises as `materialize_responses` does.
    """
    questions = evaluation_questions(workspace, recipe)
    wanted = [Cell(worker, benchmark) for worker in pool.names for benchmark in benchmarks]
    rows = _ask(questions, pool, wanted, client, recipe.evaluation.repeats, on_progress)
    for cell in wanted:
        write_responses(rows[cell], response_file(evaluation_folder(workspace), *cell))
    return rows


def _ask(
    problems: Mapping[str, Sequence[Problem]],
    pool: Pool,
    cells: Sequence[Cell],
    client: WorkerClient,
    samples: int,
    on_progress: OnProgress | None,
) -> dict[Cell, list[ResponseRow]]:
    """All workers at once, each within its own limits."""
    benchmarks: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        benchmarks[cell.worker].append(cell.benchmark)
    todo = {
        worker: [problem for name in names for problem in problems.get(name, ())]
        for worker, names in benchmarks.items()
    }
    total, done = samples * sum(map(len, todo.values())), 0

    def count(row: ResponseRow) -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total, row.worker)

    async def ask() -> list[list[ResponseRow]]:
        columns = [precache(own, pool.worker(name), client, samples, count) for name, own in todo.items()]
        results = await asyncio.gather(*columns, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    found: dict[Cell, list[ResponseRow]] = {cell: [] for cell in cells}
    for column in asyncio.run(ask()):
        for row in column:
            found[Cell(row.worker, row.benchmark)].append(row)
    return found


def _by_benchmark(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    found: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        found[problem.benchmark].append(problem)
    return found
