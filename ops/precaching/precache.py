"""Precaching: collect and grade every worker's answers to every shortlisted problem, as a table.

An interrupted run resumes from the response cache, which holds the answers so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from ops.config import Worker
from ops.core.digests import replacing_with_digest
from ops.core.errors import PodiumError, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.once import INCOMPLETE, Key
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, order, schema
from ops.workers.scheduling import Client

OnRow = Callable[["ResponseRow"], None]


def build_solo_messages(problem: Problem) -> list[Message]:
    """The prompt of a solo worker, identical to that of a one-step workflow so that both share cached responses."""
    from ops.grading import worker_prompt
    from ops.workflow.controls import plain
    from ops.workflow.grammar import SOLVE

    return [{"role": "user", "content": plain(f"{worker_prompt(problem)}\n\nSubtask: {SOLVE}")}]


async def precache_worker(
    problems: Sequence[Problem],
    worker: Worker,
    client: Client,
    samples: int = 1,
    on_progress: OnRow | None = None,
) -> list[ResponseRow]:
    """Send each problem to the worker `samples` times and grade the answers; rows are in storage order.

    `on_progress` receives each row when it is complete. If the budget is spent or the configuration is invalid, no
    further call starts, calls in flight (already paid for) are awaited, and `OverBudget` or `ConfigError` is raised.
    A repeated call continues where this one stopped.
    """
    todo = iter(product(problems, range(samples)))
    rows: list[ResponseRow] = []
    stopped: list[PodiumError] = []

    async def work() -> None:
        for problem, sample in todo:
            if stopped:
                return
            try:
                row = await answer_problem(problem, worker, client, sample)
            except PodiumError as error:
                stopped.append(error)
                return
            rows.append(row)
            if on_progress is not None:
                on_progress(row)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(2 * worker.concurrency, len(problems) * samples)):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if stopped:
        raise stopped[0]
    return sorted(rows, key=order)


async def answer_problem(problem: Problem, worker: Worker, client: Client, sample: int | Sample) -> ResponseRow:
    from ops.workflow.judging import graded

    row = ResponseRow(worker.name, problem.benchmark, problem.id, Sample.of(sample).index, "ok")
    try:
        response = await client.complete(worker, build_solo_messages(problem), sample=sample)
    except WorkerUnreachable:
        return replace(row, status="unreachable")
    except WorkerRefused:
        return replace(row, status="refused")
    [verdict] = await graded([problem], [response.text], client)
    if verdict is None or verdict.unscorable:
        return replace(row, status="unreachable")
    return replace(
        row, response=response, score=verdict.score, extracted=verdict.extracted, grading_usd=verdict.cost_usd
    )


# ── files ────────────────────────────────────────────────────────────────────


def write_responses(rows: Iterable[ResponseRow], file: Path, key: Key | None = None) -> None:
    """Write rows to a Parquet file atomically, with a digest beside it; equal rows give equal bytes.

    `key`: identity of the worker, the questions and the graders behind the answers; None: only the benchmarks'
    graders as they are now. With the row of an unreachable worker the file counts as incomplete. For a confidential
    benchmark only the answer letters are stored (`ops.benchmarks.registry`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ops.benchmarks.graded import GRADER_KEY, default_graders_key

    ordered = sorted(map(_remove_confidential_text, rows), key=order)
    stored = dict({GRADER_KEY: default_graders_key({row.benchmark for row in ordered})} if key is None else key)
    if any(row.status == "unreachable" for row in ordered):
        stored[INCOMPLETE] = "without answers of an unreachable worker"
    table = pa.Table.from_pylist([row.as_columns() for row in ordered], schema=schema())
    with replacing_with_digest(file, stored) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _remove_confidential_text(row: ResponseRow) -> ResponseRow:
    from ops.benchmarks.registry import storable_response

    text = storable_response(row.benchmark, row.response.text, row.extracted)
    if text == row.response.text:
        return row
    return replace(row, response=replace(row.response, text=text), extracted=row.extracted[:1] if text else "")
