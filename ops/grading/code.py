"""Programs: run against their tests in the sandbox, all or nothing.

What belongs here: which tests run together, their limits, and comparing what came back
with what was expected. What does not: running anything (`sandbox`, `harness`).
"""

from __future__ import annotations

import ast
import json
import math
from typing import Any

from ops.grading import program as programs
from ops.grading import sandbox
from ops.problem import CodeTest, Grade, Problem

_GIB = 1 << 30
LIMITS: dict[str, sandbox.Limits] = {
    "call": sandbox.Limits(cpu_s=4, wall_s=10, memory=_GIB),
    "stdin": sandbox.Limits(cpu_s=8, wall_s=60, memory=_GIB),
    # Real libraries: they map much and may start helpers.
    "unittest": sandbox.Limits(cpu_s=60, wall_s=150, memory=8 * _GIB, processes=16),
}
MAX_CHARACTERS = 200_000
FLOAT_TOLERANCE = 1e-6


def extracted(problem: Problem, response: str) -> str:
    """The program: the last Python block that is no example of its use, or the response where it is a program."""
    return programs.program(response, problem.tests)


def judge(problem: Problem, program: str) -> Grade:
    """Run `program` on the problem's tests. 1.0 when all pass, else 0.0 and the first reason."""
    return attempt(problem, program)[0]


def attempt(problem: Problem, program: str) -> tuple[Grade, bool]:
    """`judge`'s verdict, and whether it would be the same on a busier or quieter machine."""
    if not program.strip():
        return Grade(0.0, "", "no program found"), True
    if len(program) > MAX_CHARACTERS:
        return Grade(0.0, program[:200], f"longer than {MAX_CHARACTERS} characters"), True
    if not problem.tests:
        return Grade(0.0, program, "the problem has no tests"), True
    for kind in ("call", "stdin", "unittest"):
        tests = [test for test in problem.tests if test.kind == kind]
        if tests:
            reason, settled = _failure(kind, tests, program)
            if reason:
                return Grade(0.0, program, reason), settled
    return Grade(1.0, program, f"passed {len(problem.tests)} tests"), True


def _failure(kind: sandbox.Kind, tests: list[CodeTest], program: str) -> tuple[str, bool]:
    """Why the program fails these tests ("" when it passes)."""
    keep = [len(test.output.encode()) + 65_536 for test in tests]
    run = sandbox.run(kind, program, [test.input for test in tests], LIMITS[kind], keep=keep)
    if run.results is None:
        return run.why, not run.overran
    for number, test in enumerate(tests):
        told = run.results[number] if number < len(run.results) else ["error", run.why or "no result"]
        if reason := _wrong(test, told):
            return f"test {number + 1} of {len(tests)}: {reason}", True
    return "", True


def _wrong(test: CodeTest, told: list[Any]) -> str:
    if told[0] == "error":
        return str(told[1])
    if test.kind == "unittest":
        _, ran, bad, why = told
        return "no test ran" if ran < 1 else f"{bad} of {ran} failed: {why}" if bad else ""
    if test.kind == "stdin":
        return "" if same_output(test.output, told[1]) else f"printed {told[1][:80]!r}"
    value = decode(told[1])
    return "" if same_value(expected(test.output), value) else f"{test.input[:60]} gave {value!r:.80}"


# ── comparing ────────────────────────────────────────────────────────────────


def same_output(wanted: str, printed: str) -> bool:
    """Equal line by line but for trailing space; numbers with a point or exponent within 1e-6."""
    left, right = _lines(wanted), _lines(printed)
    if left == right:
        return True
    return len(left) == len(right) and all(
        len(a) == len(b) and all(_same_word(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip((line.split() for line in left), (line.split() for line in right), strict=True)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(wanted: str, printed: str) -> bool:
    if wanted == printed:
        return True
    if not any(mark in wanted for mark in ".eE") or len(wanted) > 60 or len(printed) > 60:
        return False
    try:
        return math.isclose(float(wanted), float(printed), rel_tol=FLOAT_TOLERANCE, abs_tol=1e-9)
    except ValueError:
        return False


def expected(literal: str) -> Any:
    """The value of a test's `output`: a Python literal, else JSON, else the text itself."""
    for read in (ast.literal_eval, json.loads):
        try:
            return _plain(read(literal))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return literal


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return frozenset(_key(_plain(item)) for item in value)
    return value


def _key(value: Any) -> Any:
    """A list as what can be a key or a member."""
    return tuple(_key(item) for item in value) if isinstance(value, list) else value


def decode(value: Any) -> Any:
    """A value as `harness.encode` reported it; sequences become lists."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    (tag, inside), *_ = value.items()
    match tag:
        case "int":
            return int(inside, 16)
        case "dict":
            return {_key(decode(key)): decode(item) for key, item in inside}
        case "set":
            return frozenset(_key(decode(item)) for item in inside)
        case "bytes":
            return bytes.fromhex(inside)
        case "complex":
            return complex(*inside)
    return _Other(str(inside))


class _Other:
    """An object that has no literal: equal to nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def same_value(wanted: Any, value: Any) -> bool:
    """Python's equality, with lists and tuples alike and floats within 1e-6 (relative)."""
    if isinstance(wanted, float) or isinstance(value, float):
        numbers = all(isinstance(side, (int, float)) for side in (wanted, value))
        return numbers and _close(wanted, value)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(same_value(a, b) for a, b in zip(wanted, value, strict=True))
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(same_value(wanted[key], value[key]) for key in wanted)
    return bool(wanted == value)


def _close(wanted: float, value: float) -> bool:
    try:
        if math.isnan(wanted) or math.isnan(value):
            return math.isnan(wanted) and math.isnan(value)
        return math.isclose(wanted, value, rel_tol=FLOAT_TOLERANCE, abs_tol=1e-9)
    except OverflowError:  # an integer beyond every float
        return False
