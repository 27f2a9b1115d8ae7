"""Precaching: collect and grade every worker's answers to the shortlisted problems, and write them as tables.

An interrupted run continues from the response cache, which holds the answers so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from ops.config import Worker
from ops.core.digests import replace_with_digest
from ops.core.errors import PodiumError, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.once import INCOMPLETE, Key
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow, arrow_schema, sort_key
from ops.core.status import Status
from ops.workers.scheduling import Client

OnRow = Callable[["ResponseRow"], None]


def build_solo_messages(problem: Problem) -> list[Message]:
    """Return the prompt of a worker that answers by itself.

    It is identical to that of a workflow with one step, so that both share cached responses.
    """
    from ops.grading import worker_prompt
    from ops.workflow.control_tokens import escape_control_tokens
    from ops.workflow.grammar import SOLVE_SUBTASK

    return [{"role": "user", "content": escape_control_tokens(f"{worker_prompt(problem)}\n\nSubtask: {SOLVE_SUBTASK}")}]


async def precache_worker(
    problems: Sequence[Problem],
    worker: Worker,
    client: Client,
    samples: int = 1,
    on_progress: OnRow | None = None,
) -> list[ResponseRow]:
    """Send each problem to the worker `samples` times and grade the answers; return the rows in storage order.

    `on_progress` receives each row when it is complete. If the budget is spent or the configuration is invalid, no
    further call starts, calls in flight (which are paid for) are awaited, and `OverBudget` or `ConfigError` is raised.
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
    return sorted(rows, key=sort_key)


async def answer_problem(problem: Problem, worker: Worker, client: Client, sample: int | Sample) -> ResponseRow:
    """Let the worker answer one problem and grade the answer.

    The row has status "unreachable" or "refused" if there is no answer. Raises the client's `OverBudget` and
    `ConfigError`.
    """
    from ops.workflow.judging import grade_answers

    row = ResponseRow(worker.name, problem.benchmark, problem.id, Sample.of(sample).index, Status.OK)
    try:
        response = await client.complete(worker, build_solo_messages(problem), sample=sample)
    except WorkerUnreachable:
        return replace(row, status=Status.UNREACHABLE)
    except WorkerRefused:
        return replace(row, status=Status.REFUSED)
    [verdict] = await grade_answers([problem], [response.text], client)
    if verdict is None or verdict.unscorable:
        return replace(row, status=Status.UNREACHABLE)
    return replace(
        row, response=response, score=verdict.score, extracted=verdict.extracted, grading_usd=verdict.cost_usd
    )


# ── files ────────────────────────────────────────────────────────────────────


def write_responses(rows: Iterable[ResponseRow], file: Path, key: Key | None = None) -> None:
    """Write rows to a Parquet file atomically, with a digest beside it; equal rows give equal bytes.

    `key` identifies the worker, the questions and the graders behind the answers; None stands for the benchmarks'
    graders in their present version. A file with the row of an unreachable worker counts as incomplete. For a
    confidential benchmark only the letters of the answers are stored (`ops.benchmarks.registry`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ops.benchmarks.graded import GRADER_KEY, default_graders_key

    ordered = sorted(map(_remove_confidential_text, rows), key=sort_key)
    stored = dict({GRADER_KEY: default_graders_key({row.benchmark for row in ordered})} if key is None else key)
    if any(row.status == Status.UNREACHABLE for row in ordered):
        stored[INCOMPLETE] = "without answers of an unreachable worker"
    table = pa.Table.from_pylist([row.as_columns() for row in ordered], schema=arrow_schema())
    with replace_with_digest(file, stored) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _remove_confidential_text(row: ResponseRow) -> ResponseRow:
    from ops.benchmarks.registry import storable_response

    text = storable_response(row.benchmark, row.response.text, row.extracted)
    if text == row.response.text:
        return row
    return replace(row, response=replace(row.response, text=text), extracted=row.extracted[:1] if text else "")
