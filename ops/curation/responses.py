"""Tallies from the stored worker responses: how often each worker was right on each problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ops.core.errors import DataError
from ops.core.rows import ResponseRow, load_responses, response_file
from ops.curation.signal import Tallies, Tally


def tallies(rows: Iterable[ResponseRow]) -> Tallies:
    """Problem → worker → right answers of how many. Unreachable calls are left out; refusals are wrong."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.status != "unreachable":
            scores[row.problem_key][row.worker].append(row.score)
    return {
        key: {worker: Tally(sum(samples), len(samples)) for worker, samples in by_worker.items()}
        for key, by_worker in scores.items()
    }


def stored_rows(folder: Path, workers: Iterable[str], benchmarks: Iterable[str]) -> list[ResponseRow]:
    """The rows of these workers and benchmarks. Raises `DataError` when a file is missing or unreadable."""
    wanted = list(benchmarks)
    files = [response_file(folder, worker, benchmark) for worker in workers for benchmark in wanted]
    for file in files:
        if not file.is_file():
            remedy = "Materialize worker_responses for this worker and benchmark"
            raise DataError(file, "(file)", "does not exist", remedy)
    return [row for file in files for row in load_responses(file)]
