"""Sort the rows of an evaluation for its score files, without holding them in memory."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from types import TracebackType

from ops.core.errors import DataError
from ops.core.once import Key
from ops.results.outcome_rows import CallUsage, OutcomeRow
from ops.results.table import hide_texts, write_rows

_TABLE = """CREATE TABLE rows (
    benchmark TEXT, problem TEXT, repeat INTEGER, fields TEXT, PRIMARY KEY (benchmark, problem, repeat)
) WITHOUT ROWID"""
_NAMES = tuple(column.name for column in fields(OutcomeRow))
_FIELDS = attrgetter(*_NAMES)
_USAGE, _WORKERS = _NAMES.index("usage"), _NAMES.index("workers")


class RowSorter:
    """Takes rows in any order and yields them sorted by benchmark, problem and repeat, without holding them in memory.

    An evaluation makes its rows repeat by repeat, and those of several questions at once; a score file has all repeats
    of a question together. The rows lie in an unnamed temporary SQLite database, which is in memory while it is small
    and vanishes with this process: it is no record of the evaluation, because everything that costs anything is in the
    store. Texts of confidential benchmarks are removed before they are written. Raises `DataError` if the disk is full.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute(_TABLE)

    def __enter__(self) -> RowSorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def add(self, rows: Sequence[OutcomeRow]) -> None:
        """Take rows; a row replaces an earlier one of the same question and repeat."""
        values = [(row.benchmark, row.problem_id, row.repeat, _encode_row(row)) for row in hide_texts(rows)]
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", values)
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            remedy = "Make room there, or set TMPDIR to another folder, and give the same command again"
            raise DataError(Path(tempfile.gettempdir()), "", f"temporary rows: {error}", remedy) from error

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM rows").fetchone()[0])

    def __iter__(self) -> Iterator[OutcomeRow]:
        """Yield all rows in order."""
        query = "SELECT fields FROM rows ORDER BY benchmark, problem, repeat"
        return (_decode_row(text) for (text,) in self._connection.execute(query))

    def rows_of_benchmark(self, benchmark: str) -> Iterator[OutcomeRow]:
        """Yield the rows of one benchmark in order."""
        query = "SELECT fields FROM rows WHERE benchmark = ? ORDER BY problem, repeat"
        return (_decode_row(text) for (text,) in self._connection.execute(query, (benchmark,)))

    def write(self, files: Mapping[str, tuple[Path, Key]]) -> None:
        """Write the score file of each benchmark: benchmark → (file, key)."""
        for benchmark, (file, key) in files.items():
            write_rows(self.rows_of_benchmark(benchmark), file, key=key)


def _encode_row(row: OutcomeRow) -> str:
    values = list(_FIELDS(row))
    values[_USAGE] = [use.as_columns() for use in row.usage]
    return json.dumps(values)


def _decode_row(text: str) -> OutcomeRow:
    values = json.loads(text)
    values[_WORKERS] = tuple(values[_WORKERS])
    values[_USAGE] = tuple(map(CallUsage.from_columns, values[_USAGE]))
    return OutcomeRow(*values)
