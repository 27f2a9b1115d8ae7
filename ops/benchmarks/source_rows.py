"""Rows of a benchmark: their origin, their checks, their conversion to problems with tests, and a seeded order."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ops.core.errors import DataError
from ops.core.problem import CodeTest, Domain, GraderName, Problem, Split
from ops.grading import GRADERS, find_gold_error

MakeError = Callable[[str, str, str], DataError]
"""Makes the error to raise from a column, the problem and the remedy."""
TEST_KINDS = ("stdin", "call", "unittest")


def parse_code_tests(value: Any, make_error: MakeError) -> tuple[CodeTest, ...]:
    """Return the tests of a code row; `make_error(column, problem, remedy)` makes the error that is raised.

    `value` is a list of `{kind, input, output, hidden}`, or `{kind: "unittest", code}`, or `{kind: "stdin" |
    "functional", fn_name, method, public, private}` with lists of `{input, output}`. A functional input holds one JSON
    value a line, the arguments in order. Tests under `private` are hidden.
    """
    if isinstance(value, list):
        tests = tuple(_parse_podium_test(test, make_error) for test in value)
    elif isinstance(value, Mapping) and value.get("kind") == "unittest":
        tests = (CodeTest("unittest", _require_text(value, "code", make_error)),)
    elif isinstance(value, Mapping):
        tests = tuple(
            replace(_parse_case(value, case, make_error), hidden=part == "private")
            for part in ("public", "private")
            for case in _list_cases(value, part, make_error)
        )
    else:
        raise make_error("tests", f"is {type(value).__name__}, not a list or an object", "Give the program's tests")
    if not tests:
        raise make_error("tests", "holds no test", "Add at least one: without it nothing can be graded")
    return tests


def _list_cases(group: Mapping[str, Any], part: str, fail: MakeError) -> list[Any]:
    cases = group.get(part) or []
    if not isinstance(cases, list):
        raise fail("tests", f"has {part} tests that are not a list", "Write a list of {input, output}")
    return cases


def _parse_podium_test(test: Any, fail: MakeError) -> CodeTest:
    if not isinstance(test, Mapping) or test.get("kind") not in TEST_KINDS:
        raise fail("tests", f"has a test that is not of kind {', '.join(TEST_KINDS)}", "Give each its kind and input")
    output = test.get("output", "")
    if not isinstance(output, str):
        raise fail("tests", "has a test whose output is not text", "Write it as a JSON string")
    hidden = test.get("hidden", False)
    if not isinstance(hidden, bool):
        raise fail("tests", "has a test whose 'hidden' is neither true nor false", "Write true, false or nothing")
    return CodeTest(test["kind"], _require_text(test, "input", fail), output, hidden)


def _parse_case(group: Mapping[str, Any], case: Any, fail: MakeError) -> CodeTest:
    if not isinstance(case, Mapping):
        raise fail("tests", "has a test that is no object", "Write {input, output}")
    given, wanted = _require_text(case, "input", fail), _require_text(case, "output", fail)
    if group.get("kind") == "stdin":
        return CodeTest("stdin", given, wanted)
    if group.get("kind") != "functional":
        raise fail("tests", f"is of unknown kind {group.get('kind')!r}", "Use stdin, functional or unittest")
    name = _require_text(group, "fn_name", fail)
    called = f"Solution().{name}" if group.get("method") else name
    try:
        arguments = ", ".join(repr(json.loads(line)) for line in given.split("\n") if line.strip())
        return CodeTest("call", f"{called}({arguments})", repr(json.loads(wanted)))
    except ValueError as error:
        raise fail("tests", f"has a value that is not JSON ({error})", "Write one JSON value a line") from None


def _require_text(values: Mapping[str, Any], key: str, fail: MakeError) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise fail("tests", f"has no text under {key!r}", "Add it")
    return value


GRADER_ALIASES = {"mcq": "choice"}
"""Other names of our graders in benchmark files."""
MAX_TEXT_CHARS = 100_000
"""The maximum length of a text; a longer one indicates a damaged file. The longest real question or answer has about
5,000 characters."""
_MISSING = "is missing"
_SURROGATE = re.compile("[\ud800-\udfff]")
_IDENTIFIER = re.compile(r"(?=.*\d|rec[a-z]*[A-Z])[A-Za-z0-9][\w./:-]{0,63}", re.ASCII)
"""The form of an id: no spaces, and a digit or the form of Airtable's records, which no word of a question has."""


def is_identifier(text: object) -> bool:
    """Return whether `text` can only be an id; the id of a confidential benchmark must be one before it is shown."""
    return isinstance(text, str) and _IDENTIFIER.fullmatch(text) is not None


@dataclass(frozen=True)
class Row:
    """One row and its origin: `place` is a file or a hub id, and `line` counts lines or rows from 1.

    `source_name` is a short name of the place, and `number` the row's number among its rows, from 1; they form the ids
    of rows that have none. `raw` is the text of a line that is no row at all. The values of a confidential row are
    never quoted.
    """

    place: str
    line: int
    values: Mapping[str, Any]
    source_name: str = ""
    number: int = 0
    unit: str = "line"
    raw: str = ""
    is_confidential: bool = False

    def make_error(self, column: str, problem: str, remedy: str) -> RowError:
        """Return the error that names file, line and column ("" if the whole line is wrong)."""
        return RowError(self, column, problem, remedy)

    def quote(self, value: object) -> str:
        """Return `value` for an error message: at most 40 characters, and nothing of a confidential row."""
        return "(not shown)" if self.is_confidential else f"{value!r:.40}"

    def text(self, column: str, *, allow_empty: bool = False) -> str:
        """Return the column's text, with numbers written out.

        Raises `RowError` if it is missing, not a text, or empty.
        """
        if column not in self.values:
            # Column names can be values too: those of a file without a header are its first row.
            others = "" if self.is_confidential else f"; the row has {', '.join(sorted(self.values)) or 'none'}"
            raise self.make_error(column, _MISSING, f"Add it{others}")
        return self.check_text(column, self.values[column], allow_empty=allow_empty)

    def check_text(self, column: str, value: object, *, allow_empty: bool = False) -> str:
        """Return `value` of `column` as text that can be written to a file. Raises `RowError`."""
        if value is None and allow_empty:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise self.make_error(column, f"is {type(value).__name__}, not text", "Write it as a JSON string")
        if not value.strip() and not allow_empty:
            raise self.make_error(column, "is empty", "Fill it in or remove the row")
        if len(value) > MAX_TEXT_CHARS:
            problem = f"has {len(value):,} characters, over {MAX_TEXT_CHARS:,}"
            raise self.make_error(column, problem, "Shorten it or remove the row")
        if "\0" in value:
            raise self.make_error(column, "holds a NUL character", "Remove the character")
        if _SURROGATE.search(value):
            raise self.make_error(column, "holds a lone surrogate, which UTF-8 cannot write", "Remove it")
        return value

    def identifier(self, column: str) -> str:
        """Return the row's id in `column`. Raises `RowError`.

        The id of a confidential row must look like one, because ids are shown.
        """
        name = self.text(column)
        if self.is_confidential and not is_identifier(name):
            remedy = (
                "Give each row an id without spaces and with a digit; check that each column is under its own heading"
            )
            raise self.make_error(column, "looks like text, not like an id", remedy)
        return name

    def text_or_empty(self, column: str) -> str:
        """Return the column's text; "" if it is missing or null."""
        return self.text(column, allow_empty=True) if self.values.get(column) is not None else ""

    def parse_structure(self, column: str) -> Any:
        """Return the column's list or object; JSON text (as in a CSV cell) is parsed, "" is null."""
        value = self.values.get(column)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else None
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or type(error).__name__
            raise self.make_error(column, f"is text but not JSON ({reason})", "Write the list as JSON") from None

    def with_values(self, **values: Any) -> Row:
        """Return the row with these columns replaced or added."""
        return replace(self, values={**self.values, **values})


class RowError(DataError):
    """The error of one unusable row; other rows can be used. Such rows are quarantined while a benchmark is loaded."""

    def __init__(self, row: Row, column: str, problem: str, remedy: str) -> None:
        where = f"{row.unit} {row.line}" + (f", column {column!r}" if column else "")
        super().__init__(row.place, where, problem, remedy)
        self.row, self.column = row, column

    @property
    def is_column_missing(self) -> bool:
        """True if the column is missing; if it is missing in every row, the file has another schema."""
        return self.problem == _MISSING


def make_problem(row: Row, benchmark: str, domain: Domain, grader: GraderName, split: Split) -> Problem:
    """Check a row and return its problem. Raises `RowError` with the column and the remedy."""
    _check_column(row, "domain", domain, {})
    if not GRADERS[grader].needs_settings:
        _check_column(row, "grader", grader, GRADER_ALIASES)
    choices = _read_choices(row) if grader == "choice" else _refuse_choices(row)
    made = Problem(
        id=row.identifier("id"),
        benchmark=benchmark,
        domain=domain,
        split=split,
        question=row.text("question").strip(),
        answer=_read_letter(row, len(choices)) if grader == "choice" else _read_gold(row, grader),
        grader=grader,
        choices=choices,
        tests=parse_code_tests(row.parse_structure("tests"), row.make_error) if grader == "code" else (),
        subject=row.text_or_empty("subject"),
        level=_normalize_level(row.text_or_empty("level") or row.text_or_empty("difficulty")),
        family=row.text_or_empty("family"),
        source=row.text_or_empty("source"),
    )
    # Programs and their tests can have megabytes; later checks parse the ones that are used.
    if grader in ("math", "text") and (reason := find_gold_error(made)):
        raise row.make_error("answer", f"cannot be read by the {grader} grader: {reason}", "Correct the answer")
    return made


class UniqueIdCheck:
    """Refuses a row whose `id` an earlier row has, and names both places.

    With a `scope`, ids need to differ only among rows that agree in that column.
    """

    def __init__(self, scope: str | None = None) -> None:
        self._scope = scope
        self._seen: dict[tuple[str, str], Row] = {}

    def check(self, row: Row) -> Row:
        """Return the same row. Raises `RowError` if its id was seen before."""
        name = (row.text(self._scope) if self._scope else "", row.text("id"))
        first = self._seen.setdefault(name, replace(row, values={}))
        if (first.place, first.line) != (row.place, row.line):
            elsewhere = "" if first.place == row.place else f" of {first.place}"
            shown = "" if row.is_confidential else f"{name[1]!r:.80} "
            problem = f"{shown}is already the id of {first.unit} {first.line}{elsewhere}"
            raise row.make_error("id", problem, "Give each row its own id")
        return row


def check_unique_ids(rows: Iterable[Row], scope: str | None = None) -> Iterator[Row]:
    """Yield the same rows, checked by `UniqueIdCheck`. Raises `RowError`."""
    return map(UniqueIdCheck(scope).check, rows)


def _check_column(row: Row, column: str, expected: str, aliases: Mapping[str, str]) -> None:
    value = row.text_or_empty(column)
    if value and aliases.get(value, value) != expected:
        problem = f"is {row.quote(value)}, but this benchmark needs {expected!r}"
        raise row.make_error(column, problem, "Is it the right file?")


def _read_choices(row: Row) -> tuple[str, ...]:
    choices = row.parse_structure("choices")
    if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= len(string.ascii_uppercase):
        raise row.make_error("choices", "is not a list of 2 to 26 texts", "Write the answers offered, in order")
    return tuple(row.check_text("choices", choice).strip() for choice in choices)


def _refuse_choices(row: Row) -> tuple[str, ...]:
    if row.parse_structure("choices"):
        raise row.make_error("choices", "are offered, but this benchmark's questions are open", "Is it the right file?")
    return ()


def _read_letter(row: Row, offered: int) -> str:
    letter = row.text("answer").strip().upper()
    letters = string.ascii_uppercase[:offered]
    if len(letter) != 1 or letter not in letters:
        problem = f"is {row.quote(letter)}, none of {', '.join(letters)}"
        raise row.make_error("answer", problem, "Write the right choice's letter")
    return letter


def _read_gold(row: Row, grader: GraderName) -> str:
    return row.text("answer", allow_empty=not GRADERS[grader].needs_gold).strip("\n")


def _normalize_level(text: str) -> str:
    level = text.removeprefix("Level ").strip()
    return "" if level == "?" else level


Item = TypeVar("Item")


def shuffle_by_hash(items: list[Item], names: list[str], seed: int) -> list[Item]:
    """Return `items` in an order that only the seed and their names determine, by SHA-256."""
    keys = {name: hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names}
    return [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: keys[pair[0]])]
