"""Precaching: every worker's answers to every shortlisted problem, graded, as a table.

Resuming needs nothing: what was answered is in the response cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from ops.config import Worker
from ops.core.atomic import replacing
from ops.core.errors import PodiumError, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message, Sample
from ops.core.rows import Origin, ResponseRow, order, schema, with_origin
from ops.workers.scheduling import Client

Progress = Callable[["ResponseRow"], None]


def solo_messages(problem: Problem) -> list[Message]:
    """What a worker is asked when it works alone: the one-step workflow's prompt, so both share the cache."""
    from ops.core.problem import worker_prompt
    from ops.workflow.controls import plain
    from ops.workflow.grammar import SOLVE

    return [{"role": "user", "content": plain(f"{worker_prompt(problem)}\n\nSubtask: {SOLVE}")}]


async def precache(
    problems: Sequence[Problem],
    worker: Worker,
    client: Client,
    samples: int = 1,
    on_progress: Progress | None = None,
) -> list[ResponseRow]:
    """Ask the worker each problem `samples` times and grade the answers; rows sorted as they are stored.

    `on_progress` is called with each row as it is done. When the budget ends or the
    configuration proves wrong, no further call begins, those in flight are awaited
    (they are paid for), and then `OverBudget` or `ConfigError` is raised: call again to
    go on where it stopped.
    """
    todo = iter(product(problems, range(samples)))
    rows: list[ResponseRow] = []
    stopped: list[PodiumError] = []

    async def work() -> None:
        for problem, sample in todo:
            if stopped:
                return
            try:
                row = await answer(problem, worker, client, sample)
            except PodiumError as error:
                stopped.append(error)
                return
            rows.append(row)
            if on_progress is not None:
                on_progress(row)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(2 * worker.concurrency, len(problems) * samples)):
            group.create_task(work())
    if stopped:
        raise stopped[0]
    return sorted(rows, key=order)


async def answer(problem: Problem, worker: Worker, client: Client, sample: int | Sample) -> ResponseRow:
    from ops.grading import grade

    row = ResponseRow(worker.name, problem.benchmark, problem.id, Sample.of(sample).index, "ok")
    try:
        response = await client.complete(worker, solo_messages(problem), sample=sample)
    except WorkerUnreachable:
        return replace(row, status="unreachable")
    except WorkerRefused:
        return replace(row, status="refused")
    graded = await asyncio.to_thread(grade, problem, response.text)
    return replace(row, response=response, score=graded.score, extracted=graded.extracted)


# ── files ────────────────────────────────────────────────────────────────────


def write_responses(rows: Iterable[ResponseRow], file: Path, origin: Origin | None = None) -> None:
    """Write rows to a Parquet file: the same rows give the same bytes, and never half of them.

    `origin`: what they are answers of. Of a confidential benchmark's responses only the letters are kept
    (`ops.benchmarks.registry`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ordered = sorted(map(_fit_to_keep, rows), key=order)
    table = pa.Table.from_pylist([row.as_columns() for row in ordered], schema=schema())
    with replacing(file) as temporary:
        pq.write_table(with_origin(table, origin), temporary, compression="zstd")


def _fit_to_keep(row: ResponseRow) -> ResponseRow:
    from ops.benchmarks.registry import shown_response

    text = shown_response(row.benchmark, row.response.text, row.extracted)
    if text == row.response.text:
        return row
    return replace(row, response=replace(row.response, text=text), extracted=row.extracted[:1] if text else "")
