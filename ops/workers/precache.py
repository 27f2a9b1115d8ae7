"""Precaching: every worker's answers to every shortlisted problem, graded, as a table.

What belongs here: asking one worker about many problems, and the rows and files
that come of it. Resuming needs nothing: what was answered is in the response cache.
What does not: what the rows say about a worker (profiles).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from ops.config import Worker
from ops.errors import DataError, PodiumError, WorkerRefused, WorkerUnreachable
from ops.origin import Origin, with_origin
from ops.problem import Problem, problem_key
from ops.workers.types import Client, Message

Status = Literal["ok", "refused", "unreachable"]
Progress = Callable[["ResponseRow"], None]


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """One worker's graded answer to one problem at one sample index.

    `score` is 0 where there is no answer: a refusal counts as wrong, an "unreachable"
    row counts as nothing (`status` tells). Costs in USD, latency in seconds, both of
    the call that was paid for. `cached` and `replayed` say where this run had it from; they are
    not stored.
    """

    worker: str
    benchmark: str
    problem_id: str
    sample: int
    text: str
    score: float
    extracted: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    latency_s: float
    status: Status
    finish_reason: str = ""
    """As the provider gave it: "stop", "length" (cut at the worker's `max_tokens`) …; "" without an answer."""
    cached: bool = False
    replayed: bool = False

    @property
    def problem_key(self) -> str:
        """The key of the problem that was asked."""
        return problem_key(self.benchmark, self.problem_id)


def solo_messages(problem: Problem) -> list[Message]:
    """What a worker is asked when it works alone: the one-step workflow's prompt, so both share the cache."""
    from ops.benchmarks.prompts import worker_prompt
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
                row = await _answer(problem, worker, client, sample)
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
    return sorted(rows, key=_order)


async def _answer(problem: Problem, worker: Worker, client: Client, sample: int) -> ResponseRow:
    from ops.grading import grade

    row = ResponseRow(worker.name, problem.benchmark, problem.id, sample, "", 0.0, "", 0, 0, 0.0, 0.0, status="ok")
    try:
        response = await client.complete(worker, solo_messages(problem), sample=sample)
    except WorkerUnreachable:
        return replace(row, status="unreachable")
    except WorkerRefused:
        return replace(row, status="refused")
    verdict = await asyncio.to_thread(grade, problem, response.text)
    return replace(
        row,
        text=response.text,
        score=verdict.score,
        extracted=verdict.extracted,
        prompt_tokens=response.prompt_tokens,
        completion_tokens=response.completion_tokens,
        cost_usd=response.cost_usd,
        latency_s=response.latency_s,
        finish_reason=response.finish_reason,
        cached=response.cached,
        replayed=response.replayed,
    )


def _order(row: ResponseRow) -> tuple[str, str, str, int]:
    return row.worker, row.benchmark, row.problem_id, row.sample


# ── files ────────────────────────────────────────────────────────────────────

_STORED = [f.name for f in fields(ResponseRow) if f.name not in {"cached", "replayed"}]


def response_file(folder: Path, worker: str, benchmark: str) -> Path:
    """Where the rows of one worker on one benchmark lie."""
    return folder / worker / f"{benchmark}.parquet"


def write_responses(rows: Iterable[ResponseRow], file: Path, origin: Origin | None = None) -> None:
    """Write rows to a Parquet file: the same rows give the same bytes, and never half of them.

    `origin`: what they are answers of. Of a confidential benchmark's responses only the letters are kept
    (`ops.benchmarks.privacy`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ordered = sorted(map(_fit_to_keep, rows), key=_order)
    table = pa.Table.from_pylist(
        [{name: getattr(row, name) for name in _STORED} for row in ordered],
        schema=_schema(),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        pq.write_table(with_origin(table, origin), temporary, compression="zstd")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _fit_to_keep(row: ResponseRow) -> ResponseRow:
    from ops.benchmarks.privacy import shown_response

    text = shown_response(row.benchmark, row.text, row.extracted)
    return row if text == row.text else replace(row, text=text, extracted=row.extracted[:1] if text else "")


def load_responses(folder: Path) -> list[ResponseRow]:
    """All rows below a folder (or of one file), sorted. Raises `DataError` where a file is no such table."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    rows = [row for file in files for row in _read(file)]
    return sorted(rows, key=_order)


def _read(file: Path) -> list[ResponseRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    remedy = "Delete it and precache again: what was answered is still in the cache"
    try:
        table = pq.ParquetFile(file).read()
    except (pa.ArrowInvalid, OSError) as error:
        what = f"is not a readable Parquet file ({type(error).__name__})"
        raise DataError(file, "(file)", what, remedy) from None
    if missing := [name for name in _STORED if name not in table.column_names]:
        raise DataError(file, "columns", f"{', '.join(missing)} missing", remedy)
    rows = [ResponseRow(**row) for row in table.select(_STORED).to_pylist()]
    if strange := {row.status for row in rows} - set(get_args(Status)):
        raise DataError(file, "column status", f"holds {', '.join(sorted(strange))}", remedy)
    return rows


def _schema() -> Any:
    import pyarrow as pa

    kinds = {"str": pa.string(), "Status": pa.string(), "int": pa.int64(), "float": pa.float64()}
    stored = [f for f in fields(ResponseRow) if f.name in _STORED]
    return pa.schema([pa.field(f.name, kinds[str(f.type)], nullable=False) for f in stored])
