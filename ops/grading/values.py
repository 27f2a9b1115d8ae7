"""Compare values from the sandbox with the expected ones, outside the sandbox, and describe the first difference."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from ops.core.cpython import evaluate_literal
from ops.core.problem import CodeTest, FailedTest

FLOAT_TOLERANCE = 1e-6
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A printed number. `float` would also read underscores, digits of other scripts, `inf` and `nan`."""
_SPACE = " \t\n\r\f\v"
_WORD = re.compile(rf"[^{_SPACE}]+")
_EXACT = 1 << 53
"""Below this bound, every integer can be represented exactly as a float."""


def is_same_output(wanted: str, printed: str) -> bool:
    """Return whether two outputs are equal line by line, except for trailing space.

    Numbers with a point or an exponent are equal within 1e-6.
    """
    left, right = split_lines(wanted), split_lines(printed)
    if left == right:
        return True
    return len(left) == len(right) and all(map(is_same_line, left, right))


def is_same_line(wanted: str, printed: str) -> bool:
    """Return whether two lines are equal word by word; numbers with a point or an exponent are equal within 1e-6."""
    left, right = _WORD.findall(wanted), _WORD.findall(printed)
    return len(left) == len(right) and all(map(_is_same_word, left, right))


def split_lines(text: str) -> list[str]:
    """Return the lines without surrounding space; empty lines at the end are dropped."""
    return [line.rstrip(_SPACE) for line in text.rstrip(_SPACE).split("\n")]


def _is_same_word(wanted: str, printed: str) -> bool:
    if wanted == printed:
        return True
    if not any(mark in wanted for mark in ".eE") or len(wanted) > 60 or len(printed) > 60:
        return False
    if not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(printed)):
        return False
    left, right = float(wanted), float(printed)
    return math.isfinite(left) and _is_close_float(left, right)


def parse_expected(text: str) -> Any:
    """Return the value of a test's `output`: a Python literal, else JSON, else the text itself."""
    for read in (evaluate_literal, json.loads):
        try:
            return _convert_to_plain(read(text))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return text


def _convert_to_plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_convert_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {_make_hashable(_convert_to_plain(key)): _convert_to_plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return frozenset(_make_hashable(_convert_to_plain(item)) for item in value)
    return value


def _make_hashable(value: Any) -> Any:
    """Return a hashable form of a list, for use as a key or a set member."""
    return tuple(_make_hashable(item) for item in value) if isinstance(value, list) else value


def decode_value(value: Any) -> Any:
    """Decode a value that `harness.plain.encode_value` wrote; sequences become lists.

    Raises `ValueError`, `TypeError` or `RecursionError` for text that `encode_value` did not write.
    """
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    [(tag, inside)] = value.items()
    match tag:
        case "int":
            return int(inside, 16)
        case "dict":
            return {_make_hashable(decode_value(key)): decode_value(item) for key, item in inside}
        case "set":
            return frozenset(_make_hashable(decode_value(item)) for item in inside)
        case "bytes":
            return bytes.fromhex(inside)
        case "complex":
            return complex(*inside)
        case "other":
            return _OpaqueValue(str(inside))
    raise ValueError(f"unknown tag {tag!r}")


class _OpaqueValue:
    """An object without a literal, equal to nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def is_same_value(wanted: Any, value: Any) -> bool:
    """Compare like Python, but treat lists and tuples alike and accept floats within 1e-6 (relative).

    An integer is exact: a float equals it within 1e-6 (absolute), which covers rounding and no other integer.
    """
    if isinstance(wanted, float) or isinstance(value, float):
        numbers = all(isinstance(side, (int, float)) for side in (wanted, value))
        return numbers and _is_close_number(wanted, value)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(is_same_value(a, b) for a, b in zip(wanted, value, strict=True))
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(is_same_value(wanted[key], value[key]) for key in wanted)
    return bool(wanted == value)


def _is_close_number(wanted: float, value: float) -> bool:
    if isinstance(wanted, int) or isinstance(value, int):
        return wanted == value or (max(abs(wanted), abs(value)) < _EXACT and abs(wanted - value) <= FLOAT_TOLERANCE)
    if math.isnan(wanted) or math.isnan(value):
        return math.isnan(wanted) and math.isnan(value)
    return _is_close_float(wanted, value)


def _is_close_float(wanted: float, value: float) -> bool:
    """Return whether two floats are equal within 1e-6 (relative); two whole numbers must be identical."""
    if wanted.is_integer() and value.is_integer() and abs(wanted) < _EXACT:
        return wanted == value
    return math.isclose(wanted, value, rel_tol=FLOAT_TOLERANCE, abs_tol=1e-9)


MAX_SHOWN_CHARACTERS = 60
"""The maximum number of characters of a value, a line or an expression that are shown."""


class ProgramFailure(NamedTuple):
    """Why a program fails its tests; the reason is "" if it passes.

    `is_timeout` is true if it ran out of time. `failed_test` is the first failed test; it is None if no test ran or
    none can be identified: no program, or a run that ended without a report.
    """

    reason: str
    is_timeout: bool = False
    failed_test: FailedTest | None = None


def find_difference(test: CodeTest, result: list[Any], number: int, test_count: int) -> FailedTest | None:
    """Describe how a result of the harness differs from the expected one; None if they agree.

    `result` is [status, value] as the sandbox reports it; the test is the `number`th of `test_count`.
    """
    status, given = result
    if status != "ok":
        return FailedTest(
            number,
            test_count,
            test.kind,
            shorten(str(given), 2 * MAX_SHOWN_CHARACTERS),
            _describe_expected(test),
            test.hidden,
        )
    got, wanted = _compare_output(test, given) if test.kind == "stdin" else _compare_value(test, given)
    return FailedTest(number, test_count, test.kind, got, wanted, test.hidden) if got else None


def shorten(text: str, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Return at most `max_characters` characters of a text, with "…" for the rest."""
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def _describe_expected(test: CodeTest) -> str:
    return shorten(repr(test.output[: 2 * MAX_SHOWN_CHARACTERS]) if test.kind == "stdin" else test.output)


def _compare_output(test: CodeTest, printed: Any) -> tuple[str, str]:
    if not isinstance(printed, str):
        return "a malformed report", ""
    if is_same_output(test.output, printed):
        return "", ""
    wanted, given = split_lines(test.output), split_lines(printed)
    if max(len(wanted), len(given)) <= 1:
        return f"printed {_describe(printed.rstrip())}", _describe(test.output.rstrip())
    pairs = zip(wanted, given, strict=False)
    line = next((i for i, pair in enumerate(pairs) if not is_same_line(*pair)), min(len(wanted), len(given)))
    return (
        f"line {line + 1} printed is {_describe_line(given, line)}",
        f"{_describe_line(wanted, line)} of {len(wanted)} lines",
    )


def _describe_line(of: list[str], number: int) -> str:
    return _describe(of[number]) if number < len(of) else "no more"


def _compare_value(test: CodeTest, given: Any) -> tuple[str, str]:
    try:
        value = decode_value(given)
        same = is_same_value(parse_expected(test.output), value)
    except (ValueError, TypeError, RecursionError):  # not written by the harness, but by the program
        return "a malformed report", ""
    if same:
        return "", ""
    return f"{shorten(test.input)} gave {_describe(value)}", _describe(parse_expected(test.output))


def _describe(value: Any) -> str:
    try:
        return shorten(repr(value[: 2 * MAX_SHOWN_CHARACTERS] if isinstance(value, str) else value))
    except ValueError:  # an integer too long to be written
        return "an integer of very many digits"
