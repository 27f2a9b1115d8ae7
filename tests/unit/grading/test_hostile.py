"""No program of `hostile.py` is graded right, and an honest one is, beside each kind of test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ops.core.problem import CodeTest, Grade
from ops.grading import grade, grade_many
from ops.grading.graders import code
from tests.builders import fenced, make_code_problem
from tests.unit.grading import hostile
from tests.unit.grading.conftest import run_late_programs_once

pytestmark = pytest.mark.timeout(300)
HONEST = "def f(x):\n    if x < 0: raise ValueError('negative')\n    return {1: 918273, 2: 465564, 3: 777}.get(x, 0)\n"
HONEST_MAIN = "print({1: 918273, 2: 465564}[int(input())])"
TESTS = """
import unittest
class Asked(unittest.TestCase):
    def test_values(self):
        self.assertEqual(f(1), 918273)
        self.assertEqual(f(2), 465564)
    def test_more(self):
        self.assertTrue(f(3) == 777)
        self.assertIn(f(3), [776, 777])
    def test_errors(self):
        with self.assertRaises(ValueError):
            f(-1)
"""
CALL = (CodeTest("call", "f(1)", "918273"), CodeTest("call", "f(2)", "465564"))
STDIN = (CodeTest("stdin", "1\n", "918273\n"), CodeTest("stdin", "2\n", "465564\n"))
UNITTEST = (CodeTest("unittest", TESTS),)


KINDS = {"call": (CALL, hostile.CALL), "stdin": (STDIN, hostile.STDIN), "unittest": (UNITTEST, hostile.UNITTEST)}
PROGRAMS = [(kind, name) for kind, (_, programs) in KINDS.items() for name in programs]
EVERY = 3
"""`make test` runs one program of this many; CI all."""


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[tuple[str, str], Grade]:
    """The verdicts of the programs that this session tests, graded concurrently because most of the time is the start
    of interpreters."""
    with pytest.MonkeyPatch.context() as patch:
        run_late_programs_once(patch)
        for kind, limits in code.LIMITS.items():
            patch.setitem(code.LIMITS, kind, replace(limits, cpu_s=1, wall_s=10, memory_bytes=1 << 30))
        chosen = {item.name for item in request.session.items if item.path == request.path}
        keys = [key for key in PROGRAMS if f"{test_no_program_grades_itself.__name__}[{'-'.join(key)}]" in chosen]
        pairs = [(make_code_problem(*KINDS[kind][0]), fenced(KINDS[kind][1][name])) for kind, name in keys]
        return dict(zip(keys, grade_many(pairs, workers=4), strict=True))


@pytest.mark.parametrize(("tests", "program"), [(CALL, HONEST), (STDIN, HONEST_MAIN), (UNITTEST, HONEST)])
def test_honest_programs_pass(tests: tuple[CodeTest, ...], program: str) -> None:
    assert grade(make_code_problem(*tests), fenced(program)).score == 1.0


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*key, marks=pytest.mark.long if number % EVERY else ()) for number, key in enumerate(PROGRAMS)],
)
def test_no_program_grades_itself(kind: str, name: str, verdicts: dict[tuple[str, str], Grade]) -> None:
    verdict = verdicts[kind, name]
    assert (verdict.score, bool(verdict.reason)) == (0.0, True)
