"""Graded responses as rows, and the Parquet files that hold them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ops.core.errors import DataError
from ops.core.problem import problem_key

Status = Literal["ok", "refused", "unreachable"]


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


def order(row: ResponseRow) -> tuple[str, str, str, int]:
    return row.worker, row.benchmark, row.problem_id, row.sample


STORED = [f.name for f in fields(ResponseRow) if f.name not in {"cached", "replayed"}]


def response_file(folder: Path, worker: str, benchmark: str) -> Path:
    """Where the rows of one worker on one benchmark lie."""
    return folder / worker / f"{benchmark}.parquet"


def load_responses(folder: Path) -> list[ResponseRow]:
    """All rows below a folder (or of one file), sorted. Raises `DataError` where a file is no such table."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    rows = [row for file in files for row in _read(file)]
    return sorted(rows, key=order)


def _read(file: Path) -> list[ResponseRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    remedy = "Delete it and precache again: what was answered is still in the cache"
    try:
        table = pq.ParquetFile(file).read()
    except (pa.ArrowInvalid, OSError) as error:
        what = f"is not a readable Parquet file ({type(error).__name__})"
        raise DataError(file, "(file)", what, remedy) from None
    if missing := [name for name in STORED if name not in table.column_names]:
        raise DataError(file, "columns", f"{', '.join(missing)} missing", remedy)
    rows = [ResponseRow(**row) for row in table.select(STORED).to_pylist()]
    if strange := {row.status for row in rows} - set(get_args(Status)):
        raise DataError(file, "column status", f"holds {', '.join(sorted(strange))}", remedy)
    return rows


def schema() -> Any:
    import pyarrow as pa

    kinds = {"str": pa.string(), "Status": pa.string(), "int": pa.int64(), "float": pa.float64()}
    stored = [f for f in fields(ResponseRow) if f.name in STORED]
    return pa.schema([pa.field(f.name, kinds[str(f.type)], nullable=False) for f in stored])
