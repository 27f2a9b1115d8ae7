"""The first test that a program fails: its number, the actual and the expected output; hidden tests run in small
groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import write_problems
from ops.benchmarks.registry import displayable_reason
from ops.core.problem import CodeTest, FailedTest, Grade
from ops.grading import grade
from ops.grading.graders import code
from ops.quality.gold import grade_gold
from tests.builders import fenced, make_code_problem
from tests.command import podium

ADD = "def f(a, b):\n    return a + b"
UNITS = """
import unittest
class Cases(unittest.TestCase):
    def test_a(self): self.assertEqual(f(1, 1), 2)
    def test_b(self): self.assertEqual(f(2, 2), 5)
    def test_c(self): self.assertEqual(f(2, 2), 6)
"""
STDIN = CodeTest("stdin", "1\n", "1\n2\n")


def failed(program: str, *tests: CodeTest) -> FailedTest:
    verdict = grade(make_code_problem(*tests), fenced(program))
    assert verdict.score == 0.0
    assert verdict.failed is not None
    assert str(verdict.failed) in verdict.reason
    return verdict.failed


@pytest.mark.parametrize(
    ("program", "tests", "words"),
    [
        (ADD, (CodeTest("call", "f(1, 2)", "3"), CodeTest("call", "f(2, 2)", "5")),
         "test 2 of 2 (call): f(2, 2) gave 4, expected 5"),
        (ADD, (CodeTest("call", "f(1, '')", "3"),),
         "test 1 of 1 (call): TypeError: unsupported operand type(s) for +: 'int' and 'str', expected 3"),
        ("print(1, 2)", (CodeTest("stdin", "", "1 2"), CodeTest("stdin", "", "3\n", hidden=True)),
         "test 2 of 2 (stdin, hidden): printed '1 2', expected '3'"),
        ("print(1)\nprint(2.5)", (CodeTest("stdin", "", "1.0\n2\n3\n"),),
         "test 1 of 1 (stdin): line 2 printed is '2.5', expected '2' of 3 lines"),
        ("print(1)", (STDIN,), "test 1 of 1 (stdin): line 2 printed is no more, expected '2' of 2 lines"),
        ("print(1)\nprint(2)\nprint(3)", (STDIN,),
         "test 1 of 1 (stdin): line 3 printed is '3', expected no more of 2 lines"),
        ("raise SystemExit(1)", (STDIN,), r"test 1 of 1 (stdin): exit status 1, expected '1\n2\n'"),
        (ADD, (CodeTest("unittest", UNITS),), "test 2 of 3 (unittest): Cases.test_b: AssertionError: 4 != 5"),
    ],
)  # fmt: skip
def test_the_first_failing_test_is_reported(program: str, tests: tuple[CodeTest, ...], words: str) -> None:
    assert str(failed(program, *tests)) == words


def test_messages_are_short_for_values_of_any_length() -> None:
    long = failed("print('x' * 100_000)", CodeTest("stdin", "", "y" * 100_000))
    many = failed("def f():\n    return 'x' * 100_000", CodeTest("call", f"f( {' ' * 1000})", repr("y" * 100_000)))
    huge = failed("def f():\n    return 10 ** 10_000", CodeTest("call", "f()", "1"))
    assert [test for test in (long, many, huge) if len(str(test)) >= 300] == []


def test_a_coloured_and_framed_error_is_shown_as_plain_text() -> None:
    framed = "raise LookupError('\\n****\\n  Resource \\x1b[93mpunkt\\x1b[0m not found.\\n  Please download it')"
    words = "LookupError: Resource punkt not found."
    inside = failed(f"def f(a, b):\n    {framed}", CodeTest("unittest", UNITS))
    assert str(inside) == f"test 1 of 3 (unittest): Cases.test_a: {words}"
    assert grade(make_code_problem(CodeTest("unittest", UNITS)), fenced(framed)).reason == f"no test ran: {words}"


@pytest.mark.parametrize(("response", "score"), [(fenced(ADD), 1.0), ("", 0.0)], ids=["right", "no program"])
def test_a_right_program_fails_no_test_and_no_program_neither(response: str, score: float) -> None:
    verdict = grade(make_code_problem(CodeTest("call", "f(1, 2)", "3")), response)
    assert (verdict.score, verdict.failed) == (score, None)


# ── runs ─────────────────────────────────────────────────────────────────────


def squares(count: int, hidden: bool) -> tuple[CodeTest, ...]:
    return tuple(CodeTest("call", f"f({n})", str(n * n), hidden) for n in range(count))


def test_public_tests_share_a_run_and_hidden_ones_run_by_few(runs: list[Any]) -> None:
    case = make_code_problem(*squares(9, hidden=False), *squares(14, hidden=True))
    assert grade(case, "def f(n):\n    return n * n").correct
    assert [run.tests for run in runs] == [9, code.HIDDEN_TESTS_PER_RUN, code.HIDDEN_TESTS_PER_RUN, 2]
    public, *hidden = (run.limits.cpu_s for run in runs)
    assert hidden == [public * run.tests for run in runs[1:]], "each hidden call has the time that public ones share"


def test_a_program_that_fails_early_is_not_run_on_the_rest(runs: list[Any]) -> None:
    case = make_code_problem(*squares(2, hidden=False), *squares(30, hidden=True))
    verdict = grade(case, "def f(n):\n    return n * n if n < 7 else 0")
    assert verdict.reason == "test 10 of 32 (call, hidden): f(7) gave 0, expected 49"
    assert len(runs) == 3


@pytest.mark.long
def test_long_outputs_do_not_share_a_run(runs: list[Any]) -> None:
    lines = "7\n" * (3 << 20)
    tests = [CodeTest("stdin", "", lines, hidden=True)] * 2
    assert grade(make_code_problem(*tests), "```python\nprint('7\\n' * (3 << 20))\n```").correct
    assert len(runs) == 2


def test_a_wrong_answer_before_a_test_that_takes_too_long_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(code.LIMITS, "stdin", replace(code.LIMITS["stdin"], cpu_s=1))
    tests = (CodeTest("stdin", "1\n", "2\n"), CodeTest("stdin", "9\n", "9\n"))
    slow = "n = int(input())\nwhile n == 9: pass\nprint(n)"
    verdict = grade(make_code_problem(*tests), fenced(slow))
    assert verdict.reason == "test 1 of 2 (stdin): printed '1', expected '2'"
    assert verdict.is_final


# ── what is shown ────────────────────────────────────────────────────────────


def test_only_the_failed_tests_number_is_shown_for_a_confidential_benchmark() -> None:
    test = FailedTest(3, 9, "stdin", "printed 'secret'", "'secret'", hidden=True)
    verdict = Grade(0.0, "program", str(test), test)
    assert displayable_reason("livecodebench", verdict) == verdict.reason
    assert displayable_reason("gpqa_diamond", verdict) == "test 3 of 9 (stdin, hidden) failed (not shown)"
    assert displayable_reason("gpqa_diamond", Grade(0.0, "B", "gold is secret")) == "not shown"


def test_the_gold_report_of_a_confidential_benchmark_quotes_no_test() -> None:
    secret = make_code_problem(
        CodeTest("call", "f(41)", "'secret'", hidden=True), answer="f = print", benchmark="gpqa_diamond"
    )
    [gold] = grade_gold([secret])
    assert (gold.score, gold.answer, gold.reason) == (0.0, "", "test 1 of 1 (call, hidden) failed (not shown)")


def test_a_person_grades_one_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert podium("init", str(tmp_path)) == 0
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    case = make_code_problem(CodeTest("call", "f(1, 2)", "3"), CodeTest("call", "f(2, 2)", "5"), id="p1")
    write_problems(tmp_path / "data" / "raw" / "livecodebench-test.jsonl", [case])
    file = tmp_path / "response.md"
    file.write_text(fenced(ADD), encoding="utf-8")
    capsys.readouterr()
    assert podium("data", "grade", "livecodebench/p1", str(file)) == 1
    assert capsys.readouterr().out == "✗  livecodebench/p1: test 2 of 2 (call): f(2, 2) gave 4, expected 5\n"
    assert podium("data", "grade", "livecodebench/p2", str(file)) == 1
    assert "livecodebench/p2: is not there" in capsys.readouterr().err
    assert podium("data", "grade", "elsewhere/p2", str(file)) == 1
    assert "does not belong to a benchmark" in capsys.readouterr().err
