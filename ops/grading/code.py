"""Programs: run against their tests in the sandbox, all or nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ops.core.problem import CodeTest, Grade, Problem
from ops.grading import program as programs
from ops.grading import sandbox, unit_tests
from ops.grading.calibration import slowness
from ops.grading.isolation import libraries
from ops.grading.turns import Turns
from ops.grading.values import decode, expected, same_output, same_value

_GIB = 1 << 30
LIMITS: dict[str, sandbox.ProgramLimits] = {
    "call": sandbox.ProgramLimits(cpu_s=4, wall_s=10, memory=_GIB),
    "stdin": sandbox.ProgramLimits(cpu_s=8, wall_s=60, memory=_GIB),
    # Real libraries: they map much and may start helpers.
    "unittest": sandbox.ProgramLimits(cpu_s=60, wall_s=150, memory=8 * _GIB, processes=16),
}
"""What a program may use on the reference machine (`calibration`); a slower one gives more."""
KINDS: tuple[sandbox.Kind, ...] = ("call", "stdin", "unittest")
GRACE = 1.5
"""A program that ran out of time runs once more, by itself, with so many times the CPU time."""
MAX_CHARACTERS = 200_000
NOT_FINAL = "not final"
"""Part of the reason of a verdict that another machine, or a quieter one, may not share."""
_TURNS = Turns()


def extracted(problem: Problem, response: str) -> str:
    """The program: the last Python block that is no example of its use, or the response where it is a program."""
    return programs.program(response, problem.tests)


def judge(problem: Problem, program: str) -> Grade:
    """Run `program` on the problem's tests. 1.0 when all pass, else 0.0 and the first reason.

    A program that runs out of time beside others runs again by itself; if it runs out of time again, the reason
    says that this is `NOT_FINAL`. Raises `OSError` when no process can be started, `ConfigError` when no wall
    that is accepted stands on this machine.
    """
    if not program.strip():
        return Grade(0.0, "", "no program found")
    if len(program) > MAX_CHARACTERS:
        return Grade(0.0, program[:200], f"longer than {MAX_CHARACTERS} characters")
    if not problem.tests:
        return Grade(0.0, program, "the problem has no tests")
    failure = _first_failure(problem, program, 1.0, _TURNS.beside_others())
    if failure.late:
        failure = _first_failure(problem, program, GRACE, _TURNS.alone())
    if failure.late:
        return Grade(0.0, program, f"{failure.reason} ({NOT_FINAL}: a faster machine may say otherwise)")
    return Grade(0.0, program, failure.reason) if failure.reason else Grade(
        1.0, program, f"passed {len(problem.tests)} tests"
    )  # fmt: skip


def is_final(grade: Grade) -> bool:
    """Whether a verdict would be the same on any machine, so that it may be remembered."""
    return NOT_FINAL not in grade.reason


class Failure(NamedTuple):
    """Why a program fails its tests, "" when it passes; `late`: for want of time."""

    reason: str
    late: bool


def _first_failure(problem: Problem, program: str, grace: float, turn: AbstractContextManager[None]) -> Failure:
    with turn:
        for kind in KINDS:
            tests = [test for test in problem.tests if test.kind == kind]
            failure = _failure(problem, kind, tests, program, grace)
            if failure.reason:
                return failure
    return Failure("", False)


def _failure(problem: Problem, kind: sandbox.Kind, tests: list[CodeTest], program: str, grace: float) -> Failure:
    limits, chosen = LIMITS[kind].times(slowness(), grace), libraries(problem.benchmark)
    if kind == "unittest":
        for number, test in enumerate(tests):
            reason, late = unit_tests.failure(program, test.input, limits, chosen)
            if reason:
                return Failure(_at(number, tests, reason), late)
        return Failure("", False)
    if not tests:
        return Failure("", False)
    keep = [len(test.output.encode()) + 65_536 for test in tests]
    run = sandbox.run(kind, program, [test.input for test in tests], limits, keep=keep, chosen=chosen)
    if run.results is None:
        return Failure(run.why or "ended without an answer", run.overran)
    if len(run.results) > len(tests):
        return Failure("a malformed report", False)
    for number, test in enumerate(tests):
        result = run.results[number] if number < len(run.results) else ["error", run.why or "no result"]
        if reason := _wrong(test, result):
            return Failure(_at(number, tests, reason), run.overran)
    return Failure("", False)


def _at(number: int, tests: list[CodeTest], reason: str) -> str:
    return f"test {number + 1} of {len(tests)}: {reason}"


def _wrong(test: CodeTest, result: list[Any]) -> str:
    """Why this result is not what the test expects, "" when it is."""
    status, given = result
    if status != "ok":
        return str(given)
    if test.kind == "stdin":
        if not isinstance(given, str):
            return "a malformed report"
        return "" if same_output(test.output, given) else f"printed {given[:80]!r}"
    try:
        value = decode(given)
        same = same_value(expected(test.output), value)
    except (ValueError, TypeError, RecursionError):  # not what the harness writes: the program's own
        return "a malformed report"
    return "" if same else f"{test.input[:60]} gave {_shown(value)}"


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # an integer too long to be written
        return "an integer of very many digits"
