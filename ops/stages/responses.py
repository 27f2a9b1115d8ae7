"""The data stage `worker_responses`, and the workers' own answers to the evaluation questions."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from ops.benchmarks.graded import is_graded_by_current_graders, prepare_tables, read_graded_responses
from ops.benchmarks.problem_files import group_by_benchmark, read_evaluation_questions, read_problems
from ops.benchmarks.registry import training_benchmarks
from ops.config import Pool, Setup, group_by_setup
from ops.core.async_run import run_async
from ops.core.digests import DamagedFile
from ops.core.errors import OverBudget
from ops.core.once import Key, false_if_inputs_missing, is_made, read_key
from ops.core.problem import Problem
from ops.core.processes import lock_files
from ops.core.response_rows import REMEDY, ResponseRow, load_responses, response_file
from ops.core.workspace import Workspace
from ops.evaluation.stored_scores import list_solo_workers
from ops.grading.hidden_tests import check_hidden_tests
from ops.planning.estimate import (
    CallEstimator,
    Cost,
    MeasuredUsage,
    estimate_calls,
    explain_cap_error,
    plan_precache_calls,
)
from ops.planning.lengths import estimate_lengths
from ops.planning.stage_estimates import StageEstimator
from ops.precaching.precache import precache_worker, write_responses
from ops.precaching.stored_profiles import WorkerBenchmark, evaluation_folder, responses_key, with_grading_code
from ops.spending.bookings import format_usd
from ops.spending.ledger import Ledger
from ops.versioning import lock_dvc
from ops.workers.client import CallCounts, WorkerClient

OnProgress = Callable[[int, int, str], None]


def estimate_responses(setup: Setup, client: WorkerClient, cells: Iterable[WorkerBenchmark] | None = None) -> Cost:
    """Estimate what `materialize_responses` would cost, without calling a worker. Raises `DataError` and
    `ConfigError`."""
    return _estimate(
        setup, client, _group_problems_by_worker(_read_shortlist(setup.workspace), _list_wanted(setup, cells))
    )


def estimate_without_problems(setup: Setup, recipe_file: str) -> str:
    """Describe the expected cost of precaching from the recipe alone, before its problems are loaded. Raises
    `ConfigError`."""
    known = estimate_lengths(setup)
    cost = StageEstimator(setup, known, {}, MeasuredUsage()).estimate_precaching()
    stages = " and ".join(f"`podium data {stage} {recipe_file}`" for stage in ("raw", "shortlist"))
    return (
        f"{cost.calls.expected:,.0f} calls: about {format_usd(cost.usd.expected)}, up to {format_usd(cost.usd.high)} "
        f"(by the recipe; data/shortlist.jsonl is missing). {stages} make it at no cost; then the estimate uses the "
        "problems themselves"
    )


def materialize_responses(
    setup: Setup,
    client: WorkerClient,
    cells: Iterable[WorkerBenchmark] | None = None,
    on_progress: OnProgress | None = None,
    *,
    force: bool = False,
) -> dict[WorkerBenchmark, list[ResponseRow]]:
    """Ask the workers the shortlisted problems and write their graded answers, one file per worker and benchmark.

    The files are `data/responses/WORKER/BENCHMARK.parquet`; `cells` selects pairs of worker and benchmark, and None
    selects all. Files that are up to date are read, unless `force` is true. Files of the pool's other workers are also
    made again if they are damaged or were graded by another version of a grader. If two processes make the same file,
    one waits and then reads the answers from the cache. Files of workers that the pool lacks are deleted.

    A rehearsal (`recipe.replay`) adds missing files and replaces none. Raises `DataError`, `ConfigError` and
    `OverBudget`, whose message states the progress and the remaining cost. No file changes then, and the answers so far
    are in the cache.
    """
    wanted, folder = _list_wanted(setup, cells), setup.workspace.data / "responses"
    with lock_files(setup.workspace, *(response_file(folder, *cell) for cell in wanted)):
        return _materialize(setup, client, wanted, folder, on_progress, force)


def list_precached_keys(setup: Setup, cells: Iterable[WorkerBenchmark] | None = None) -> dict[WorkerBenchmark, Key]:
    """Return pair of worker and benchmark → the key of its file of precached responses; `cells` None means all pairs.

    Raises `DataError`.
    """
    shortlisted, samples = _read_shortlist(setup.workspace), setup.recipe.precaching.samples
    return {
        cell: with_grading_code(
            responses_key(setup.pool.worker(cell.worker), shortlisted.get(cell.benchmark, ()), samples)
        )
        for cell in _list_wanted(setup, cells)
    }


def _materialize(
    setup: Setup,
    client: WorkerClient,
    wanted: Sequence[WorkerBenchmark],
    folder: Path,
    on_progress: OnProgress | None,
    again: bool,
) -> dict[WorkerBenchmark, list[ResponseRow]]:
    shortlisted, samples = _read_shortlist(setup.workspace), setup.recipe.precaching.samples
    keys = list_precached_keys(setup, wanted)
    rehearses = setup.recipe.replay is not None
    if not rehearses:
        prepare_tables({response_file(folder, *cell): key for cell, key in keys.items()})
    kept = [cell for cell in wanted if _is_kept(response_file(folder, *cell), keys[cell], rehearses, again)]
    open_cells = [cell for cell in wanted if cell not in kept]
    try:
        rows = _ask(shortlisted, setup.pool, open_cells, client, samples, on_progress)
    except OverBudget as error:
        remaining = _estimate(setup, client, _group_problems_by_worker(shortlisted, open_cells))
        raise explain_cap_error(error, remaining) from None
    with lock_dvc(setup.workspace):  # DVC must not hash the folder during the writes
        for cell in open_cells:
            write_responses(rows[cell], response_file(folder, *cell), keys[cell])
        remove_other_workers(setup)
    return rows | {cell: read_graded_responses(response_file(folder, *cell)) for cell in kept}


def remove_other_workers(setup: Setup) -> None:
    """Delete the precached responses of workers that the pool lacks; a rehearsal deletes nothing."""
    for stale in find_other_worker_folders(setup) if setup.recipe.replay is None else ():
        shutil.rmtree(stale)


def find_other_worker_folders(setup: Setup) -> list[Path]:
    """Return the folders with precached responses of workers that the pool lacks."""
    folders = (setup.workspace.data / "responses").glob("*/")
    return [folder for folder in folders if folder.is_dir() and folder.name not in setup.pool.names]


def _is_kept(file: Path, key: Key, rehearses: bool, again: bool) -> bool:
    return file.is_file() if rehearses else not again and is_made(file, key)


def answer_evaluation_questions(
    setup: Setup,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
    *,
    force: bool = False,
) -> dict[WorkerBenchmark, list[ResponseRow]]:
    """Collect the own answers of single workers to the evaluation questions of `benchmarks`.

    The workers are those of `list_solo_workers`. They have the evaluation's settings for each benchmark, and give as
    many samples as these say. The result and the files have one entry per worker and benchmark. Files that are up to
    date are read, unless `force` is true. Raises the errors of `materialize_responses`.
    """
    keys, setup = _list_solo_keys(setup, benchmarks), setup.for_opponents
    cells, workers, alike = list(keys), list_solo_workers(setup), group_by_setup(setup, benchmarks)
    questions, folder = read_evaluation_questions(setup.workspace, setup.recipe), evaluation_folder(setup.workspace)
    rows: dict[WorkerBenchmark, list[ResponseRow]] = {}
    with lock_files(setup.workspace, *(response_file(folder, *cell) for cell in cells)):
        prepare_tables({response_file(folder, *cell): key for cell, key in keys.items()})
        for asked, names in alike:
            wanted = [WorkerBenchmark(worker, name) for worker in workers for name in names]
            wanted = [cell for cell in wanted if force or not is_made(response_file(folder, *cell), keys[cell])]
            rows |= _ask(questions, asked.pool, wanted, client, asked.recipe.evaluation.repeats, on_progress)
        for cell, own in rows.items():
            write_responses(own, response_file(folder, *cell), keys[cell])
    return {cell: rows[cell] if cell in rows else load_responses(response_file(folder, *cell)) for cell in cells}


@false_if_inputs_missing
def is_evaluation_answered(setup: Setup, benchmarks: Sequence[str]) -> bool:
    """Return whether all files that `answer_evaluation_questions` would write exist and would come out the same."""
    folder = evaluation_folder(setup.workspace)
    return all(is_made(response_file(folder, *cell), key) for cell, key in _list_solo_keys(setup, benchmarks).items())


def _list_solo_keys(setup: Setup, benchmarks: Sequence[str]) -> dict[WorkerBenchmark, Key]:
    setup = setup.for_opponents
    questions, keys = read_evaluation_questions(setup.workspace, setup.recipe), dict[WorkerBenchmark, Key]()
    for cell in (WorkerBenchmark(worker, name) for worker in list_solo_workers(setup) for name in benchmarks):
        asked = setup.for_benchmark(cell.benchmark)
        repeats, worker = asked.recipe.evaluation.repeats, asked.pool.worker(cell.worker)
        keys[cell] = with_grading_code(responses_key(worker, questions.get(cell.benchmark, ()), repeats, asked))
    return keys


def _ask(
    problems: Mapping[str, Sequence[Problem]],
    pool: Pool,
    cells: Sequence[WorkerBenchmark],
    client: WorkerClient,
    samples: int,
    on_progress: OnProgress | None,
) -> dict[WorkerBenchmark, list[ResponseRow]]:
    """Send the problems of these pairs of worker and benchmark, all workers in parallel and each within its own
    limits."""
    todo = _group_problems_by_worker(problems, cells)
    check_hidden_tests(problem for own in todo.values() for problem in own)
    total, done = samples * sum(map(len, todo.values())), 0

    def count(_: ResponseRow) -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total, _format_progress(client.counts))

    async def ask() -> list[list[ResponseRow]]:
        columns = [precache_worker(own, pool.worker(name), client, samples, count) for name, own in todo.items()]
        results = await asyncio.gather(*columns, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    rows: dict[WorkerBenchmark, list[ResponseRow]] = {cell: [] for cell in cells}
    for column in run_async(ask()):
        for row in column:
            rows[WorkerBenchmark(row.worker, row.benchmark)].append(row)
    return rows


def _format_progress(counts: CallCounts) -> str:
    """Return a note on the calls so far: made, cached, replayed and failed, and USD spent."""
    parts = [f"{counts.live:,} asked", f"{counts.cached:,} cached"]
    parts += [f"{counts.replayed:,} replayed"] * bool(counts.replayed)
    parts += [f"{counts.failed:,} failed"] * bool(counts.failed)
    return ", ".join([*parts, format_usd(counts.usd)])


def _list_wanted(setup: Setup, cells: Iterable[WorkerBenchmark] | None) -> list[WorkerBenchmark]:
    """Return the given pairs of worker and benchmark, and those whose files cannot be used as they are; for None, all
    pairs."""
    names = training_benchmarks(setup.recipe.benchmarks)
    every = [WorkerBenchmark(worker, name) for worker in setup.pool.names for name in names]
    if cells is None:
        return every
    chosen = list(cells)
    others = () if setup.recipe.replay is not None else (cell for cell in every if cell not in chosen)
    return chosen + [cell for cell in others if _is_outdated(response_file(setup.workspace.data / "responses", *cell))]


def _is_outdated(file: Path) -> bool:
    """Return whether a file exists that is damaged or was graded by another version of a grader."""
    if not file.exists():
        return False
    try:
        return not is_graded_by_current_graders(read_key(file, REMEDY))
    except DamagedFile:
        return True


def _group_problems_by_worker(
    problems: Mapping[str, Sequence[Problem]], cells: Iterable[WorkerBenchmark]
) -> dict[str, list[Problem]]:
    """Return worker → the problems to ask, alternating between benchmarks, so that programs run while other calls
    wait."""
    by_worker: dict[str, list[tuple[int, Problem]]] = defaultdict(list)
    for cell in cells:
        by_worker[cell.worker].extend(enumerate(problems.get(cell.benchmark, ())))
    return {name: [problem for _, problem in sorted(own, key=itemgetter(0))] for name, own in by_worker.items()}


def _estimate(setup: Setup, client: WorkerClient, problems: Mapping[str, Sequence[Problem]]) -> Cost:
    asks = (
        ask
        for name, own in problems.items()
        for ask in plan_precache_calls(own, [setup.pool.worker(name)], setup.recipe.precaching.samples)
    )
    return estimate_calls(asks, client.cache, measure_prices(setup, client.ledger), "precaching")


def measure_prices(setup: Setup, ledger: Ledger) -> CallEstimator:
    """Return the prices of the setup's pool, with token counts measured from precached responses and the ledger.

    Raises `DataError`.
    """
    rows = _read_stored_responses(setup.workspace.data / "responses")
    judges = {name: grader.judge for name, grader in setup.recipe.judges.items()}
    return CallEstimator(
        setup.pool.workers, MeasuredUsage.from_rows(rows, ledger), pool_file=setup.pool_file, judges=judges
    )


def _read_stored_responses(folder: Path) -> list[ResponseRow]:
    """Read the stored responses for their lengths, without damaged files, which precaching makes again."""
    rows: list[ResponseRow] = []
    for file in sorted(folder.rglob("*.parquet")):
        with suppress(DamagedFile):
            rows += load_responses(file)
    return rows


def _read_shortlist(workspace: Workspace) -> dict[str, list[Problem]]:
    return group_by_benchmark(read_problems(shortlist_file(workspace)))


def shortlist_file(workspace: Workspace) -> Path:
    """Return the file of the shortlisted problems, which every worker answers."""
    return workspace.data / "shortlist.jsonl"
