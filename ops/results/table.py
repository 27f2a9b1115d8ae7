"""The results table: the score rows of a system in Parquet files, which polars reads lazily, priced by the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

from ops.config import Pool, Price, Setup
from ops.core.checked_files import open_table
from ops.core.digests import replace_with_digest
from ops.core.errors import DataError
from ops.core.once import INCOMPLETE, Key
from ops.core.response import RESPONSE_COLUMNS
from ops.core.response_rows import REMEDY as RESPONSES_REMEDY
from ops.core.response_rows import RESPONSE_DEFAULTS, ResponseRow, find_absent_columns
from ops.core.response_rows import arrow_schema as response_schema
from ops.core.usage import USAGE_COLUMNS
from ops.results.outcome_rows import CallUsage, OutcomeRow

if TYPE_CHECKING:
    import polars as pl

ROWS_PER_PART = 5_000
"""The number of rows that are read or written at a time."""
REMEDY = "Run the recipe again (`podium run RECIPE`): it makes the file again, with the answers that are in the cache"
Rows = Union["pl.LazyFrame", Iterable[OutcomeRow]]
"""The rows of a system: a lazy table, or records in memory, which `to_table` converts."""
TEXT_COLUMNS = ("completion", "answer")
_COLUMNS = tuple(column.name for column in fields(OutcomeRow))
_USAGE = {"worker": "string", **USAGE_COLUMNS}
"""The fields of one response's usage in a score file, with their Arrow types."""


# ── files ────────────────────────────────────────────────────────────────────


def save_rows(rows: Rows, file: Path, *, texts: bool = True, key: Key | None = None) -> None:
    """Write the rows as `write_rows` does, sorted by benchmark, problem and repeat."""
    import polars as pl

    # Replacing the texts before the sort means that they are not read either.
    kept = to_table(rows) if texts else to_table(rows).with_columns(pl.lit("").alias(name) for name in TEXT_COLUMNS)
    write_rows(kept.sort("benchmark", "problem_id", "repeat"), file, texts=texts, key=key)


def write_rows(rows: Rows, file: Path, *, texts: bool = True, key: Key | None = None) -> None:
    """Write the rows in their order into a Parquet file with a digest, atomically.

    They are written in parts, so that memory does not grow with their number. Without `texts`, completions and answers
    are stored empty. Texts of a confidential benchmark are always stored empty, because they quote its questions. `key`
    is the key of the inputs of the scores; it marks a file with an unscorable answer as incomplete. Raises `OSError`.
    """
    import pyarrow.parquet as pq

    schema, stored = _schema(), None if key is None else dict(key)
    with replace_with_digest(file, stored) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for part in _split_into_parts(rows):
            if stored is not None and part["unscorable"].any():
                stored[INCOMPLETE] = "without the scores of some answers"
            writer.write_table(_hide_texts_in_part(part, texts).to_arrow().cast(schema))


def _split_into_parts(rows: Rows) -> Iterator[pl.DataFrame]:
    """Yield the rows in parts of `ROWS_PER_PART`, in their order."""
    import polars as pl

    if isinstance(rows, pl.LazyFrame):
        yield from rows.collect_batches(chunk_size=ROWS_PER_PART, maintain_order=True)
        return
    left = iter(rows)
    while part := list(islice(left, ROWS_PER_PART)):
        yield _to_frame(part)


def _hide_texts_in_part(part: pl.DataFrame, texts: bool) -> pl.DataFrame:
    """Return the rows without the texts of confidential benchmarks, or without all texts if `texts` is False."""
    import polars as pl

    from ops.benchmarks.registry import is_confidential

    names = [name for name in part["benchmark"].unique() if not texts or is_confidential(name)]
    shown = pl.when(~pl.col("benchmark").is_in(names))
    return part.with_columns(shown.then(pl.col(name)).otherwise(pl.lit("")).alias(name) for name in TEXT_COLUMNS)


def hide_texts(rows: Iterable[OutcomeRow]) -> list[OutcomeRow]:
    """Return the rows without the texts of confidential benchmarks."""
    from ops.benchmarks.registry import is_confidential

    return [replace(row, completion="", answer="") if is_confidential(row.benchmark) else row for row in rows]


def _to_frame(rows: Sequence[OutcomeRow]) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa

    columns = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
    columns["usage"] = [[response_usage.as_columns() for response_usage in responses] for responses in columns["usage"]]
    frame = pl.from_arrow(pa.table(columns, schema=_schema()))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _schema() -> Any:
    """Return the Arrow schema of score files."""
    import pyarrow as pa

    plain = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    usage = pa.struct([(name, pa.type_for_alias(kind)) for name, kind in _USAGE.items()])
    types = plain | {"tuple[str, ...]": pa.list_(pa.string()), "tuple[CallUsage, ...]": pa.list_(usage)}
    return pa.schema([(column.name, types[str(column.type)]) for column in fields(OutcomeRow)])


def scan_rows(
    file: Path, remedy: str = REMEDY, *, undigested: Literal["damaged", "accepted"] = "damaged"
) -> pl.LazyFrame:
    """Return the rows of a file that `save_rows` or `write_rows` wrote, in their order. Columns are read only when they
    are used.

    A column or a field of the usage that a file of an earlier version lacks gets its default. `undigested` says whether
    a file without a digest is "damaged" or "accepted". Raises `DataError` if the file does not exist, was changed or
    has another format; `remedy` is the last sentence of the message.
    """
    import polars as pl

    with open_table(file, remedy, missing=undigested) as table:
        schema = table.schema_arrow
    defaults = {column.name: column.default for column in fields(OutcomeRow) if column.name not in schema.names}
    if missing := [name for name, default in defaults.items() if default is MISSING or name == "usage"]:
        raise DataError(file, f"column {missing[0]}", "is missing", remedy)
    rows = pl.scan_parquet(file, glob=False).with_columns(pl.lit(value).alias(name) for name, value in defaults.items())
    parts = {part.name for part in schema.field("usage").type.value_type}
    if not parts >= _USAGE.keys():
        completed = (pl.element().struct.field(name) if name in parts else _default_column(name) for name in _USAGE)
        rows = rows.with_columns(pl.col("usage").list.eval(pl.struct(completed)))
    return rows.select(_COLUMNS)


def _default_column(name: str) -> pl.Expr:
    """Return the column of a response or of its usage that a file of an earlier version lacks."""
    import polars as pl

    types = {"int64": pl.Int64(), "string": pl.String(), "float64": pl.Float64()}
    return pl.lit(RESPONSE_DEFAULTS[name], types[RESPONSE_COLUMNS[name]]).alias(name)


def scan_responses(file: Path) -> pl.LazyFrame:
    """Return a file with a worker's graded responses as score rows, in which each response is a workflow of one step.

    The sample index becomes the repeat. A refusal counts as a wrong answer and an unreachable worker as unscorable, as
    in the Conductor's rows. Raises `DataError` as `scan_rows` does.
    """
    import polars as pl

    with open_table(file, RESPONSES_REMEDY) as table:
        absent = find_absent_columns(file, table.schema_arrow.names, RESPONSES_REMEDY)
    return _scores_of_responses(pl.scan_parquet(file, glob=False).with_columns(map(_default_column, absent)))


def response_rows_as_scores(responses: Iterable[ResponseRow]) -> pl.LazyFrame:
    """Return graded responses in memory as score rows, in the same way as `scan_responses`."""
    import polars as pl
    import pyarrow as pa

    columns = pa.Table.from_pylist([row.as_columns() for row in responses], schema=response_schema())
    frame = pl.from_arrow(columns)
    assert isinstance(frame, pl.DataFrame)
    return _scores_of_responses(frame.lazy())


def _scores_of_responses(responses: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    expressions: dict[str, pl.Expr] = {
        "repeat": pl.col("sample"),
        "domain": pl.lit(""),
        "correct": (pl.col("score") >= 1.0).cast(pl.Int64),
        "format_ok": pl.lit(True),
        "failure": pl.lit(""),
        "status": pl.col("status").replace("ok", "answered"),
        "steps": pl.lit(1, pl.Int64),
        "workers": pl.concat_list("worker"),
        "tokens": pl.col("prompt_tokens") + pl.col("completion_tokens"),
        "completion": pl.lit(""),
        "answer": pl.col("text"),
        "unscorable": pl.col("status") == "unreachable",
        "usage": pl.concat_list(pl.struct(list(_USAGE))),
        **{field.name: pl.lit(field.default) for field in fields(OutcomeRow) if isinstance(field.default, str)},
        "rounds": pl.lit(1, pl.Int64),
    }
    return responses.select(expressions.get(name, pl.col(name)).alias(name) for name in _COLUMNS)


def load_rows(
    file: Path, remedy: str = REMEDY, *, undigested: Literal["damaged", "accepted"] = "damaged"
) -> list[OutcomeRow]:
    """Return the rows of a file as records. Raises the errors of `scan_rows`."""
    return list(iterate_rows(file, remedy, undigested=undigested))


def iterate_rows(
    file: Path, remedy: str = REMEDY, *, undigested: Literal["damaged", "accepted"] = "damaged"
) -> Iterator[OutcomeRow]:
    """Yield the rows of a file as records, reading it in parts. Raises the errors of `scan_rows`."""
    return iterate_records(scan_rows(file, remedy, undigested=undigested))


# ── tables and records ───────────────────────────────────────────────────────


def to_table(rows: Rows) -> pl.LazyFrame:
    """Return the rows as a lazy table whose columns are the fields of `OutcomeRow`."""
    import polars as pl

    if isinstance(rows, pl.LazyFrame):
        return rows
    return _to_frame(list(rows)).lazy()


def concatenate_rows(tables: Iterable[Rows]) -> pl.LazyFrame:
    """Return the rows of several tables as one table, in their order."""
    import polars as pl

    return pl.concat([to_table(rows) for rows in tables] or [to_table(())])


def iterate_records(rows: Rows) -> Iterator[OutcomeRow]:
    """Yield the rows of a table as records, in their order, reading it in parts."""
    for part in to_table(rows).collect_batches(chunk_size=ROWS_PER_PART, maintain_order=True):
        columns = part.to_dict(as_series=False)
        columns["workers"] = list(map(tuple, columns["workers"]))
        columns["usage"] = [tuple(map(CallUsage.from_columns, responses)) for responses in columns["usage"]]
        yield from map(OutcomeRow, *(columns[name] for name in _COLUMNS))


# ── prices ───────────────────────────────────────────────────────────────────


def reprice_rows(rows: Rows, pool: Pool) -> pl.LazyFrame:
    """Return the rows with their cost in USD recomputed from the usage of each response, at the pool's prices.

    A row keeps its recorded cost if one of its workers is not in the pool or has no price there, in which case
    LiteLLM's price table was used.
    """
    import polars as pl

    prices = {worker.name: worker.price for worker in pool.workers}
    usd = pl.struct("usage", "cost_usd").map_batches(
        lambda part: _compute_usd(part, prices), return_dtype=pl.Float64, is_elementwise=True
    )
    return to_table(rows).with_columns(usd.alias("cost_usd"))


def _compute_usd(rows: pl.Series, prices: Mapping[str, Price | None]) -> pl.Series:
    """Return the cost of each row in USD. `rows` has the fields `usage` and `cost_usd`."""
    import numpy as np
    import polars as pl

    usage, recorded = rows.struct.field("usage").to_arrow(), rows.struct.field("cost_usd").to_numpy()
    responses, cached_usd = usage.flatten(), dict[tuple[Any, ...], float]()
    names = [field.name for field in responses.type]

    def compute_response_usd(values: tuple[Any, ...]) -> float:
        if (cost := cached_usd.get(values)) is None:
            call_usage = CallUsage.from_columns(dict(zip(names, values, strict=True)))
            price = prices.get(call_usage.worker)
            cost = cached_usd[values] = _UNPRICED if price is None else price.compute_usd(call_usage.usage)
        return cost

    costs = np.fromiter(
        map(compute_response_usd, zip(*(responses.field(name).to_pylist() for name in names), strict=True)), float
    )
    offsets = np.asarray(usage.offsets) - usage.offsets[0].as_py() if len(usage) else np.zeros(1, int)
    has_responses = np.diff(offsets) > 0
    usd_by_row = recorded.copy()
    if costs.size:
        sums = np.add.reduceat(costs, offsets[:-1][has_responses])
        usd_by_row[has_responses] = np.where(np.isnan(sums), recorded[has_responses], sums)
    return pl.Series("cost_usd", usd_by_row)


_UNPRICED = float("nan")


def reprice_by_benchmark(rows: Rows, setup: Setup) -> pl.LazyFrame:
    """Return the rows grouped by benchmark, each group at the prices of the pool that answers this benchmark."""
    import polars as pl

    table = to_table(rows)
    names = table.select("benchmark").collect()["benchmark"].unique(maintain_order=True)
    return concatenate_rows(
        reprice_rows(table.filter(pl.col("benchmark") == name), setup.for_benchmark(name).pool) for name in names
    )
