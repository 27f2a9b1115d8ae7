"""Problems as JSON lines: the one format in which stages hand problems to each other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ops.benchmarks.files import read_rows
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.rows import Row, unique
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem


def write_problems(file: Path, problems: Iterable[Problem]) -> None:
    """Write one JSON object a line, in order, keys sorted: equal problems give equal bytes."""
    lines = (json.dumps(p.as_row(), ensure_ascii=False, sort_keys=True) for p in problems)
    write_text(file, "".join(f"{line}\n" for line in lines))


def read_problems(file: Path) -> list[Problem]:
    """Read what `write_problems` wrote; an id is unique within its benchmark. Raises `DataError`."""
    if not file.is_file():
        raise DataError(file, "(file)", "does not exist", "Materialize the stage that writes it first")
    return [_problem(row) for row in unique(map(_veiled, read_rows(file)), scope="benchmark")]


def _veiled(row: Row) -> Row:
    """The row, its values never told where it is a confidential benchmark's or says no benchmark's name."""
    entry = BENCHMARKS.get(str(row.values.get("benchmark")))
    return replace(row, veiled=entry is None or entry.confidential)


def _problem(row: Row) -> Problem:
    try:
        return Problem.from_row(dict(row.values))
    except TypeError as error:
        remedy = "The file was written by another version: materialize it again"
        reason = "" if row.veiled else f" ({error})"
        raise DataError(row.place, f"line {row.line}", f"is no problem row{reason}", remedy) from None
