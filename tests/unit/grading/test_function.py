"""A user's function as grader: what it may return, and that a failing or hostile one gives no credit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ops.config import FunctionGrader, Grading
from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.grading import configure, grade, grade_many, isolation
from tests.builders import make_problem

ROOT = Path(__file__).resolve().parents[3]
NET = "import socket\n    socket.create_connection(('127.0.0.1', 9), 1)\n    return 1"
FORGED = """
import os, sys
REPORT = '[["ok", true]]'
def grade(problem, answer):
    for number in range(3, 64):
        try:
            os.write(number, REPORT.encode())
        except OSError:
            pass
    print(REPORT, flush=True)
    os._exit(0)
"""


def graded_by(body: str, **fields: Any) -> Problem:
    """A problem whose grader is the function with that body, or that whole source."""
    source = body if "def grade" in body else f"def grade(problem, answer):\n    {body}\n"
    own = FunctionGrader(file="own.py", source=source)
    configure(Grading(isolation=isolation()), ROOT, graders=[own])
    return make_problem(grader="function", grading=own.version, **fields)


@pytest.mark.parametrize(
    ("body", "score"),
    [
        ("return answer.endswith(problem['answer'])", 1.0),
        ("return problem['answer'] == 'other'", 0.0),
        ("return 1", 1.0),
        ("return 0.25", 0.25),
        ("print('seen'); return len(problem['choices']) == 0 and problem['id'] == 'rlpr-000'", 1.0),
        ("import re, fractions\n    return fractions.Fraction(1, 2)", 0.5),
    ],
)
def test_it_gives_true_false_or_a_number_from_0_to_1(body: str, score: float) -> None:
    verdict = grade(graded_by(body), "<think>5</think>I say 4")
    assert (verdict.score, verdict.extracted) == (score, "I say 4")
    assert verdict.correct == (score == 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return 1 / 0", "ZeroDivisionError: division by zero"),
        ("return float('nan')", "it gave nan"),
        ("return 2.0", "it gave 2.0"),
        ("return -0.5", "it gave -0.5"),
        ("return 'right'", "it gave 'right'"),
        ("return None", "it gave None"),
        ("return object()", "it gave an object of type object"),
        ("return [1]", "it gave [1]"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import os\n    os._exit(0)", "ended without an answer"),
        (NET, "Error"),
        ("return open('/etc/passwd').read() and 1", "Error"),
        (FORGED, "ended without an answer"),
        ("def grade(problem):\n    return 1\n", "TypeError"),
        ("raise SystemError\ndef grade(problem, answer): return 1\n", "SystemError"),
        ("return __import__('nowhere')", "ModuleNotFoundError"),
    ],
)
def test_a_failing_or_hostile_one_gives_no_credit_and_says_why(body: str, why: str) -> None:
    verdict = grade(graded_by(body), "4")
    assert verdict.score == 0
    assert verdict.reason.startswith("the grader's function grade failed: ") and why in verdict.reason
    assert "\n" not in verdict.reason and "Traceback" not in verdict.reason


@pytest.mark.parametrize("body", ["while True: pass", "import time\n    time.sleep(1000)"])
def test_one_that_does_not_end_is_stopped_and_not_remembered(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ops.grading import sandbox
    from ops.grading.graders import function

    quick = sandbox.ProgramLimits(cpu_s=0.5, wall_s=2, memory=1 << 30)
    monkeypatch.setitem(function.LIMITS, "call", quick)
    monkeypatch.setattr(function, "slowness", lambda: 1.0)
    verdict = grade(graded_by(body), "4")
    assert (verdict.score, "not final" in verdict.reason) == (0, True), verdict


def test_an_answer_is_data_and_never_code() -> None:
    problem = graded_by("return answer == '4'")
    hostile = ["4')) or exit(0) #", "__import__('os')._exit(0)", "\\'); raise SystemExit #", "\ud800", "{}" * 9, "\0"]
    assert [each.score for each in grade_many([(problem, answer) for answer in [*hostile, "4"]])] == [0.0] * 6 + [1.0]


def test_an_empty_answer_runs_nothing() -> None:
    assert grade(graded_by("return 1"), " \n").reason == "no answer found"


def test_another_source_is_another_version_and_an_unknown_one_is_named() -> None:
    one, other = (FunctionGrader(file="own.py", source=f"def grade(p, a): return {n}\n") for n in (0, 1))
    assert one.version != other.version
    assert one.version != one.model_copy(update={"function": "other"}).version
    problem = make_problem(grader="function", grading="function-0123456789ab")
    with pytest.raises(ConfigError, match=r"benchmarks\.rlpr\.grader: .*Load them again: `podium data raw RECIPE`"):
        grade(problem, "4")


def test_without_bubblewrap_it_needs_the_recipes_consent(no_bubblewrap: None) -> None:
    problem = graded_by("return True")
    configure(Grading(), ROOT)  # a recipe that does not say that limits suffice
    with pytest.raises(ConfigError, match=r"grading\.isolation"):
        grade(problem, "4")


@pytest.mark.parametrize(("body", "score"), [("return True", 1.0), (FORGED, 0.0), (NET, 0.0), ("return 'x'", 0.0)])
def test_behind_limits_alone_it_runs_as_programs_do(body: str, score: float, limits_alone: None) -> None:
    problem = graded_by(body)
    configure(Grading(isolation="resource_limits"), ROOT)
    assert grade(problem, "4").score == score
