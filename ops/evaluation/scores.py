"""Reading and writing of score rows, and their cost at the pool's prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from ops.config import Pool, Setup
from ops.core.atomic import replacing
from ops.core.errors import DataError
from ops.core.rows import Origin, with_origin
from ops.evaluation.rows import OutcomeRow, Usage

_COLUMNS = tuple(column.name for column in fields(OutcomeRow))


def save_rows(rows: Sequence[OutcomeRow], file: Path, *, texts: bool = True, origin: Origin | None = None) -> None:
    """Write the sorted rows atomically as parquet. If `texts` is false, completions and answers are stored empty.

    Texts of a confidential benchmark are always stored empty, because they quote its questions. `origin` records what
    the scores depend on.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ops.benchmarks.registry import is_confidential

    ordered = sorted(rows, key=lambda row: (row.benchmark, row.problem_id, row.repeat))
    columns = {name: [getattr(row, name) for row in ordered] for name in _COLUMNS}
    columns["workers"] = list(map(list, columns["workers"]))
    columns["usage"] = [[use._asdict() for use in responses] for responses in columns["usage"]]
    veiled = {name for name in set(columns["benchmark"]) if not texts or is_confidential(name)}
    for text in ("completion", "answer") if veiled else ():
        columns[text] = ["" if row.benchmark in veiled else getattr(row, text) for row in ordered]
    frame = pd.DataFrame(columns)
    with replacing(file) as temporary:
        pq.write_table(with_origin(pa.Table.from_pandas(frame, preserve_index=False), origin), temporary)


def load_rows(file: Path) -> list[OutcomeRow]:
    """Read a file that `save_rows` wrote. Raises `DataError` if it does not exist or has another format."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        table = pq.ParquetFile(file).read()
    except FileNotFoundError:
        raise DataError(file, "", "does not exist", "Materialize benchmark_scores first") from None
    except ArrowInvalid as error:
        raise DataError(file, "", f"is not parquet ({error})", "Delete it and evaluate again") from None
    if missing := [name for name in _COLUMNS if name not in table.column_names]:
        raise DataError(file, f"column {missing[0]}", "is missing", "Delete the file and evaluate again")
    columns = {name: table.column(name).to_pylist() for name in _COLUMNS}
    columns["workers"] = list(map(tuple, columns["workers"]))
    columns["usage"] = [tuple(Usage(**use) for use in responses) for responses in columns["usage"]]
    return list(map(OutcomeRow, *columns.values()))


def at_prices(rows: Iterable[OutcomeRow], pool: Pool) -> list[OutcomeRow]:
    """Return the rows with their cost in USD recomputed at the pool's prices.

    A row keeps its recorded cost if one of its workers is not in the pool or has no price there (LiteLLM's own table
    then gives the price).
    """
    prices = {worker.name: worker.price for worker in pool.workers}

    def priced(row: OutcomeRow) -> OutcomeRow:
        known = [(prices.get(use.worker), use) for use in row.usage]
        if not known or any(price is None for price, _ in known):
            return row
        usd = sum(price.usd(use.prompt_tokens, use.completion_tokens) for price, use in known if price is not None)
        return replace(row, cost_usd=usd)

    return [priced(row) for row in rows]


def priced(rows: Sequence[OutcomeRow], setup: Setup) -> list[OutcomeRow]:
    """Return the rows grouped by benchmark, each at the prices of the pool that answers that benchmark."""
    made: list[OutcomeRow] = []
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        own = [row for row in rows if row.benchmark == benchmark]
        made += at_prices(own, setup.asked_on(benchmark).pool)
    return made
