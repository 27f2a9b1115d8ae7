"""The first test that a program fails, in words: what came and what should have come, both shortened."""

from __future__ import annotations

from typing import Any, NamedTuple

from ops.core.problem import CodeTest, FailedTest
from ops.grading.values import decode, expected, lines, same_lines, same_output, same_value

SHOWN = 60
"""Characters of a value, a line or an expression that are shown."""


class ProgramFailure(NamedTuple):
    """Why a program fails its tests, "" when it passes; `late`: for want of time; the first `test` that it fails.

    It is None where no test ran or none can be named: no program, or a run that ended without a report.
    """

    reason: str
    late: bool = False
    test: FailedTest | None = None


def differing(test: CodeTest, result: list[Any], number: int, of: int) -> FailedTest | None:
    """How a result of the harness differs from what the test expects; None where it does not.

    `result` is [status, what] as the sandbox reports it; the test is the `number`th of `of`.
    """
    status, given = result
    if status != "ok":
        return FailedTest(number, of, test.kind, shortened(str(given), 2 * SHOWN), _wanted(test), test.hidden)
    got, wanted = _of_output(test, given) if test.kind == "stdin" else _of_value(test, given)
    return FailedTest(number, of, test.kind, got, wanted, test.hidden) if got else None


def shortened(text: str, most: int = SHOWN) -> str:
    """At most `most` characters of a text, "…" where there were more."""
    return text if len(text) <= most else f"{text[:most]}…"


def _wanted(test: CodeTest) -> str:
    return shortened(repr(test.output[: 2 * SHOWN]) if test.kind == "stdin" else test.output)


def _of_output(test: CodeTest, printed: Any) -> tuple[str, str]:
    if not isinstance(printed, str):
        return "a malformed report", ""
    if same_output(test.output, printed):
        return "", ""
    wanted, given = lines(test.output), lines(printed)
    if max(len(wanted), len(given)) <= 1:
        return f"printed {_shown(printed.rstrip())}", _shown(test.output.rstrip())
    pairs = zip(wanted, given, strict=False)
    line = next((i for i, pair in enumerate(pairs) if not same_lines(*pair)), min(len(wanted), len(given)))
    return f"line {line + 1} printed is {_line(given, line)}", f"{_line(wanted, line)} of {len(wanted)} lines"


def _line(of: list[str], number: int) -> str:
    return _shown(of[number]) if number < len(of) else "no more"


def _of_value(test: CodeTest, given: Any) -> tuple[str, str]:
    try:
        value = decode(given)
        same = same_value(expected(test.output), value)
    except (ValueError, TypeError, RecursionError):  # not what the harness writes: the program's own
        return "a malformed report", ""
    if same:
        return "", ""
    return f"{shortened(test.input)} gave {_shown(value)}", _shown(expected(test.output))


def _shown(value: Any) -> str:
    try:
        return shortened(repr(value[: 2 * SHOWN] if isinstance(value, str) else value))
    except ValueError:  # an integer too long to be written
        return "an integer of very many digits"
