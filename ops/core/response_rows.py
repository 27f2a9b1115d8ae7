"""Tables of workers' graded responses in Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from ops.core.checked_files import open_table
from ops.core.errors import DataError
from ops.core.problem import problem_key
from ops.core.response import NO_RESPONSE, RESPONSE_COLUMNS, Response
from ops.core.status import Status
from ops.core.usage import Usage

REMEDY = "Precache again (`podium data responses RECIPE`): the answers are still in the cache"
STATUSES = (Status.OK, Status.REFUSED, Status.UNREACHABLE)
"""The statuses that a row may have."""


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """One worker's graded answer to one problem at one sample index.

    A row with a `response` has the status `OK`. Without a response, `score` is 0. A row that is `REFUSED` counts as a
    wrong answer; one that is `UNREACHABLE` is excluded from averages. `grading_usd` is the cost in USD of a model that
    judged the answer.
    """

    worker: str
    benchmark: str
    problem_id: str
    sample: int
    status: Status
    response: Response = NO_RESPONSE
    score: float = 0.0
    extracted: str = ""
    grading_usd: float = 0.0

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> ResponseRow:
        """Return the row with the values of a table's columns. Raises `KeyError` or `TypeError` for a missing
        column, and `ValueError` for an unknown status."""
        values = {name: columns[name] for name in _ROW_FIELDS}
        return cls(response=Response.from_stored(columns), **values | {"status": Status(values["status"])})

    def as_columns(self) -> dict[str, Any]:
        """Return the row's values by column name, in the order of `COLUMNS`."""
        values = self.response.as_stored() | {name: getattr(self, name) for name in _ROW_FIELDS}
        return {name: values[name] for name in COLUMNS}

    @property
    def problem_key(self) -> str:
        """The key of the problem that was asked, for example "mmlu/7"."""
        return problem_key(self.benchmark, self.problem_id)


def sort_key(row: ResponseRow) -> tuple[str, str, str, int]:
    """Return the key by which rows are sorted: worker, benchmark, problem and sample index."""
    return row.worker, row.benchmark, row.problem_id, row.sample


COLUMNS = {
    "worker": "string",
    "benchmark": "string",
    "problem_id": "string",
    "sample": "int64",
    **RESPONSE_COLUMNS,
    "score": "float64",
    "extracted": "string",
    "status": "string",
    "grading_usd": "float64",
}
"""The columns of a table with their Arrow types: those of the row, of its response and of the response's usage."""
_ROW_FIELDS = tuple(name for name in COLUMNS if name not in RESPONSE_COLUMNS)
_REQUIRED_COUNTS = ("prompt_tokens", "completion_tokens")
RESPONSE_DEFAULTS = {
    each.name: each.default
    for each in (*fields(Response), *fields(Usage))
    if each.name in RESPONSE_COLUMNS and each.default is not MISSING and each.name not in _REQUIRED_COUNTS
}
"""The columns that a table of an earlier version may lack, with the values that it is read with: the fields of a
response and of its usage that have a default."""


def response_file(folder: Path, worker: str, benchmark: str) -> Path:
    """Return the path of the file with the rows of one worker on one benchmark."""
    return folder / worker / f"{benchmark}.parquet"


def find_absent_columns(file: Path, present: Collection[str], remedy: str = REMEDY) -> list[str]:
    """Return the columns that the table lacks, all of which have a value in `RESPONSE_DEFAULTS`. Raises `DataError` for
    another one."""
    absent = [name for name in COLUMNS if name not in present]
    if missing := [name for name in absent if name not in RESPONSE_DEFAULTS]:
        raise DataError(file, "columns", f"{', '.join(missing)} missing", remedy)
    return absent


def load_responses(folder: Path) -> list[ResponseRow]:
    """Return all rows of a file, or of all Parquet files below a folder, sorted by `sort_key`.

    Raises `DataError` for a file that is damaged or is not a table of responses.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    rows = [row for file in files for row in _read_table(file)]
    return sorted(rows, key=sort_key)


def _read_table(file: Path) -> list[ResponseRow]:
    with open_table(file, REMEDY) as table:
        absent = find_absent_columns(file, table.schema_arrow.names)
        rows = table.read([name for name in COLUMNS if name not in absent]).to_pylist()
    if unknown := {columns["status"] for columns in rows} - set(STATUSES):
        raise DataError(file, "column status", f"holds {', '.join(sorted(unknown))}", REMEDY)
    return [ResponseRow.from_columns(columns) for columns in rows]


def arrow_schema() -> Any:
    """Return the PyArrow schema of the tables."""
    import pyarrow as pa

    columns = ((name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items())
    return pa.schema([pa.field(name, kind, nullable=name == "stated_usd") for name, kind in columns])
