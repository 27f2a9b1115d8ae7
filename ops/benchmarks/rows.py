"""Rows of a benchmark file: reading JSON lines, and turning one checked row into a `Problem`.

What belongs here: what makes a row malformed, and how a person is told. What does
not: the peculiarities of one benchmark (its own file) and writing (`store`).
"""

from __future__ import annotations

import gzip
import json
import string
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from ops.benchmarks.programs import code_tests
from ops.errors import DataError
from ops.problem import Domain, GraderName, Problem, Split

GRADER_ALIASES = {"mcq": "choice"}
"""Names that benchmark files use for our graders."""


@dataclass(frozen=True)
class Row:
    """One row and where it came from: `place` is a file or a hub id, `line` counts from 1."""

    place: str
    line: int
    values: Mapping[str, Any]

    def error(self, column: str, problem: str, remedy: str) -> DataError:
        """The error that names file, line and column."""
        return DataError(self.place, f"line {self.line}, column {column!r}", problem, remedy)

    def text(self, column: str, *, empty: bool = False) -> str:
        """The column's text, numbers written out. Raises `DataError` if it is missing, no text, or empty."""
        if column not in self.values:
            raise self.error(column, "is missing", f"Add it; the row has {', '.join(sorted(self.values)) or 'none'}")
        value = self.values[column]
        if value is None and empty:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise self.error(column, f"is {type(value).__name__}, not text", "Write it as a JSON string")
        if not value.strip() and not empty:
            raise self.error(column, "is empty", "Fill it in or remove the row")
        _encodable(self, column, value)
        return value

    def maybe(self, column: str) -> str:
        """The column's text, "" when it is absent or null."""
        return self.text(column, empty=True) if self.values.get(column) is not None else ""

    def having(self, **values: Any) -> Row:
        """The same row with columns replaced or added."""
        return replace(self, values={**self.values, **values})


def read_rows(file: Path) -> Iterator[Row]:
    """Rows of a `.jsonl` or `.jsonl.gz` file, one at a time; blank lines are skipped.

    Raises `DataError` when the file is absent, empty, truncated, not UTF-8, or a line is no JSON object.
    """
    if not file.is_file():
        raise DataError(file, "(file)", "does not exist", "Mend the path in the recipe or put the file there")
    line, found = 0, False
    try:
        with _open(file) as lines:
            for line, text in enumerate(lines, start=1):
                if text.strip():
                    found = True
                    yield Row(str(file), line, _parse(file, line, text))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        remedy = "Fetch the file again: it is incomplete or no gzip file"
        raise DataError(file, f"after line {line}", f"cannot be unpacked ({error})", remedy) from None
    except UnicodeDecodeError as error:
        raise DataError(file, f"after line {line}", f"is not UTF-8 ({error.reason})", "Save it as UTF-8") from None
    if not found:
        raise DataError(file, "(file)", "holds no rows", "Fetch or generate the file again")


def problem_of(row: Row, benchmark: str, domain: Domain, grader: GraderName, split: Split) -> Problem:
    """The problem that a checked row describes. Raises `DataError` naming the column and the remedy."""
    _agree(row, "domain", domain, {})
    _agree(row, "grader", grader, GRADER_ALIASES)
    choices = _choices(row) if grader == "choice" else ()
    return Problem(
        id=row.text("id"),
        benchmark=benchmark,
        domain=domain,
        split=split,
        question=row.text("question").strip(),
        answer=_letter(row, len(choices)) if grader == "choice" else _gold(row, grader),
        grader=grader,
        choices=choices,
        tests=code_tests(row.values.get("tests"), row.error) if grader == "code" else (),
        subject=row.maybe("subject"),
        level=_level(row.maybe("level") or row.maybe("difficulty")),
        family=row.maybe("family"),
        source=row.maybe("source"),
    )


def unique(rows: Iterable[Row], scope: str | None = None) -> Iterator[Row]:
    """The same rows. Raises `DataError` at the second of two rows with one `id`, naming both lines.

    With a `scope`, ids need to differ only among rows that agree in that column.
    """
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        name = (row.text(scope) if scope else "", row.text("id"))
        if name in seen:
            raise row.error("id", f"{name[1]!r} is already the id of line {seen[name]}", "Give each row its own id")
        seen[name] = row.line
        yield row


def _open(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", newline="\n")
    return file.open(encoding="utf-8", newline="\n")


def _parse(file: Path, line: int, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({getattr(error, 'msg', None) or error})"
        raise DataError(file, f"line {line}", problem, "Mend or remove the line") from None
    if not isinstance(values, dict):
        raise DataError(file, f"line {line}", f"is a {type(values).__name__}, not an object", "Write one JSON object")
    return values


def _encodable(row: Row, column: str, value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise row.error(column, "holds a lone surrogate, which UTF-8 cannot write", "Remove the character") from None


def _agree(row: Row, column: str, expected: str, aliases: Mapping[str, str]) -> None:
    found = row.maybe(column)
    if found and aliases.get(found, found) != expected:
        raise row.error(column, f"is {found!r}, but this benchmark's is {expected!r}", "Is it the right file?")


def _choices(row: Row) -> tuple[str, ...]:
    found = row.values.get("choices")
    if not isinstance(found, list | tuple) or not 2 <= len(found) <= len(string.ascii_uppercase):
        raise row.error("choices", "is not a list of 2 to 26 texts", "Write the answers offered, in order")
    offered = [row.having(choices=choice).text("choices") for choice in found]
    return tuple(choice.strip() for choice in offered)


def _letter(row: Row, offered: int) -> str:
    letter = row.text("answer").strip().upper()
    letters = string.ascii_uppercase[:offered]
    if len(letter) != 1 or letter not in letters:
        raise row.error("answer", f"is {letter!r:.40}, none of {', '.join(letters)}", "Write the right choice's letter")
    return letter


def _gold(row: Row, grader: GraderName) -> str:
    return row.text("answer", empty=grader == "code").strip("\n")


def _level(text: str) -> str:
    level = text.removeprefix("Level ").strip()
    return "" if level == "?" else level
