"""Reading and writing of score rows, and their cost at the pool's prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ops.config import Pool, Setup
from ops.core.checked import opened_table
from ops.core.digests import replacing_with_digest
from ops.core.errors import DataError
from ops.core.once import INCOMPLETE, Key
from ops.core.usage import USAGE_COLUMNS
from ops.evaluation.rows import CallUsage, OutcomeRow

PART = 5_000
"""The rows that are read or written at once."""
REMEDY = "Run the recipe again (`podium run RECIPE`): it makes the file again, with the answers that are in the cache"
_COLUMNS = tuple(column.name for column in fields(OutcomeRow))


def save_rows(rows: Iterable[OutcomeRow], file: Path, *, texts: bool = True, key: Key | None = None) -> None:
    """Write the rows as `write_rows` does, sorted by benchmark, problem and repeat."""
    ordered = sorted(rows, key=lambda row: (row.benchmark, row.problem_id, row.repeat))
    write_rows(ordered, file, texts=texts, key=key)


def write_rows(rows: Iterable[OutcomeRow], file: Path, *, texts: bool = True, key: Key | None = None) -> None:
    """Write the rows atomically as parquet with a digest beside it, in their order and in parts, so that memory does
    not grow with the rows.

    If `texts` is false, completions and answers are stored empty. Texts of a confidential benchmark are always stored
    empty, because they quote its questions. `key` holds the inputs of the scores. A file with an answer that could not
    be scored counts as incomplete.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, left, stored = _schema(), iter(rows), None if key is None else dict(key)
    with replacing_with_digest(file, stored) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        while part := list(islice(left, PART)):
            kept = veiled(part, texts=texts)
            if stored is not None and any(row.unscorable for row in part):
                stored[INCOMPLETE] = "without the scores of some answers"
            columns = {name: [getattr(row, name) for row in kept] for name in _COLUMNS}
            columns["usage"] = [[use.as_columns() for use in responses] for responses in columns["usage"]]
            writer.write_table(pa.table(columns, schema=schema))


def veiled(rows: Iterable[OutcomeRow], *, texts: bool = True) -> list[OutcomeRow]:
    """Return the rows without the texts of confidential benchmarks, or without any if `texts` is false."""
    from ops.benchmarks.registry import is_confidential

    def veil(row: OutcomeRow) -> bool:
        return not texts or is_confidential(row.benchmark)

    return [replace(row, completion="", answer="") if veil(row) else row for row in rows]


def _schema() -> Any:
    """Return the Arrow schema of score files."""
    import pyarrow as pa

    columns = {"worker": "string", **USAGE_COLUMNS}
    usage = pa.struct([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])
    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    types |= {"tuple[str, ...]": pa.list_(pa.string()), "tuple[CallUsage, ...]": pa.list_(usage)}
    return pa.schema([(column.name, types[str(column.type)]) for column in fields(OutcomeRow)])


def load_rows(
    file: Path, remedy: str = REMEDY, *, undigested: Literal["damaged", "accepted"] = "damaged"
) -> list[OutcomeRow]:
    """Read a file that `save_rows` wrote; `undigested` says what a file without a digest is taken for.

    Raises `DataError`, whose last sentence is `remedy`, if the file does not exist, was changed or has another format.
    """
    return list(iterate_rows(file, remedy, undigested=undigested))


def iterate_rows(
    file: Path, remedy: str = REMEDY, *, undigested: Literal["damaged", "accepted"] = "damaged"
) -> Iterator[OutcomeRow]:
    """Read the rows of a file in their order, part by part. Raises the errors of `load_rows`."""
    with opened_table(file, remedy, missing=undigested) as table:
        if missing := [name for name in _COLUMNS if name not in table.schema_arrow.names]:
            raise DataError(file, f"column {missing[0]}", "is missing", remedy)
        for part in table.iter_batches(PART, columns=list(_COLUMNS)):
            columns = {name: part.column(name).to_pylist() for name in _COLUMNS}
            columns["workers"] = list(map(tuple, columns["workers"]))
            columns["usage"] = [tuple(map(CallUsage.from_columns, responses)) for responses in columns["usage"]]
            yield from map(OutcomeRow, *columns.values())


@dataclass(frozen=True)
class StoredRows:
    """The rows of score files, each at the prices of its pool: read part by part each time that they are iterated."""

    files: Sequence[tuple[Path, Pool]]

    def __iter__(self) -> Iterator[OutcomeRow]:
        """Raise the errors of `load_rows`."""
        for file, pool in self.files:
            yield from iter_at_prices(iterate_rows(file), pool)

    def __len__(self) -> int:
        """Raises the errors of `load_rows`."""
        return sum(map(_row_count, (file for file, _ in self.files)))


def _row_count(file: Path) -> int:
    with opened_table(file, REMEDY) as table:
        return int(table.metadata.num_rows)


def at_prices(rows: Iterable[OutcomeRow], pool: Pool) -> list[OutcomeRow]:
    """Return the rows as `iter_at_prices` gives them."""
    return list(iter_at_prices(rows, pool))


def iter_at_prices(rows: Iterable[OutcomeRow], pool: Pool) -> Iterator[OutcomeRow]:
    """Give the rows with their cost in USD recomputed at the pool's prices.

    A row keeps its recorded cost if one of its workers is not in the pool or has no price there (LiteLLM's own table
    then gives the price).
    """
    prices = {worker.name: worker.price for worker in pool.workers}

    def priced(row: OutcomeRow) -> OutcomeRow:
        known = [(prices.get(use.worker), use) for use in row.usage]
        if not known or any(price is None for price, _ in known):
            return row
        usd = sum(price.usd(use.usage) for price, use in known if price is not None)
        return replace(row, cost_usd=usd)

    return map(priced, rows)


def priced(rows: Sequence[OutcomeRow], setup: Setup) -> list[OutcomeRow]:
    """Return the rows grouped by benchmark, each at the prices of the pool that answers that benchmark."""
    made: list[OutcomeRow] = []
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = [row for row in rows if row.benchmark == benchmark]
        made += at_prices(own, setup.asked_on(benchmark).pool)
    return made
