"""Programs: the three kinds of test, the comparison of outputs, and hostile programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.core.problem import CodeTest
from ops.grading import grade, sandbox
from ops.grading.values import expected, same_output, same_value
from tests.builders import fenced, make_code_problem
from tests.unit.grading.hostile import EXHAUSTING

DESCRIPTORS = Path("/proc/self/fd")
SQUARE = "n = int(input())\nprint(n * n)"
ADD = "def f(a, b):\n    return a + b"
SUM_TESTS = """
import unittest
class Sums(unittest.TestCase):
    def test_small(self):
        self.assertEqual(f(1, 2), 3)
    def test_large(self):
        self.assertEqual(f(10**9, 1), 10**9 + 1)
"""
STDIN = (CodeTest("stdin", "3\n", "9\n"), CodeTest("stdin", "4\n", "16\n"))
CALL = (CodeTest("call", "f(2, 3)", "5"), CodeTest("call", "f([1], (2,)[:1] and [2])", "[1, 2]"))
UNITTEST = (CodeTest("unittest", SUM_TESTS),)


@pytest.mark.parametrize(("tests", "program"), [(STDIN, SQUARE), (CALL, ADD), (UNITTEST, ADD)])
def test_the_reference_program_scores_one(tests: tuple[CodeTest, ...], program: str) -> None:
    case = make_code_problem(*tests, answer=program)
    assert grade(case, fenced(program)).score == 1.0
    assert grade(case, case.answer).score == 1.0, "a bare program is read as one"


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        (STDIN, "print(int(input()) * 3)"),
        (STDIN, "print(int(input()) ** 2); raise SystemExit(1)"),
        (CALL, "def f(a, b):\n    return a - b"),
        (CALL, "def g(a, b):\n    return a + b"),
        (UNITTEST, "def f(a, b):\n    return 3"),
        (UNITTEST, "import unittest\ndef f(a, b):\n    raise unittest.SkipTest('pass me')"),
        (UNITTEST, "import os\nos._exit(0)"),
        (CALL, "def f(a, b:\n    return"),
    ],
)
def test_a_wrong_program_scores_zero(tests: tuple[CodeTest, ...], program: str) -> None:
    assert grade(make_code_problem(*tests), fenced(program)).score == 0.0


def test_all_tests_must_pass_and_kinds_may_be_mixed() -> None:
    both = make_code_problem(*CALL, CodeTest("call", "f(1, 1)", "3"))
    assert grade(both, fenced(ADD)).score == 0.0
    assert grade(make_code_problem(*CALL, *UNITTEST), fenced(ADD)).score == 1.0


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (f"```python\nbroken(\n```\nBetter:\n```python\n{ADD}\n```", 1.0),
        (f"```python\n{ADD}\n```\nOutput:\n```\n5\n```", 1.0),
        (f"```py\n{ADD}", 1.0),
        (f"```\n{ADD}\n```", 1.0),
        ("I would add the two numbers.", 0.0),
        ("", 0.0),
    ],
    ids=["the last block", "a block of output after it", "never closed", "unmarked", "prose", "nothing"],
)
def test_which_block_is_the_program(response: str, score: float) -> None:
    assert grade(make_code_problem(*CALL), response).score == score


def test_a_program_ends_as_the_interpreter_would_end_it() -> None:
    late = "import atexit, threading\nn = int(input())\nthreading.Thread(target=lambda: print(n * n)).start()"
    assert grade(make_code_problem(*STDIN), fenced(late)).score == 1.0
    at_exit = "import atexit\nn = int(input())\natexit.register(lambda: print(n * n))"
    assert grade(make_code_problem(*STDIN), fenced(at_exit)).score == 1.0


def test_a_program_may_leave_by_exit_and_by_quit() -> None:
    for leave in ("exit", "quit"):
        assert grade(make_code_problem(*STDIN), fenced(f"{SQUARE}\n{leave}()\nprint('more')")).score == 1.0


def test_a_solution_class_finds_its_usual_imports() -> None:
    method = "    def total(self, xs: List[int]) -> int:\n        return sum(xs) + pow(2, 3, 7) - 1"
    program = f"class Solution:\n{method}"
    assert grade(make_code_problem(CodeTest("call", "Solution().total([1, 2])", "3")), fenced(program)).score == 1.0


@pytest.mark.parametrize(
    ("literal", "expression", "same"),
    [
        ("1000000007", "1000000007.0", True),
        ("3", "sum([0.1] * 30)", True),
        ("1000000007", "1000000907.0", False),
        ("1000000007", "1000000007.5", False),
        ("[1000000007]", "[1000000907.0]", False),
        ("1000000007.0", "1000000907", False),
        ("1000000007.0", "1000000907.0", False),
        ("123456789.5", "123456789.6", True),
        ("250000.0", "250000", True),
        ("2500000.5", "2500000.6", True),
        (str(10**16 + 1), "1e16", False),
        (str(10**400), "float('inf')", False),
        ("1.5", "10**400", False),
        ("1e999", "10**400", False),
        ("1", "True", True),
        ("1e999", "1e999", True),
        ("1e999", "1e300", False),
        ("[1, 2]", "(1, 2)", True),
        ("{1, 2}", "frozenset([2, 1])", True),
        ("{'a': [1]}", "{'a': (1,)}", True),
        ("0.3", "0.1 + 0.2", True),
        ("true", "1 == 1", True),
        (str(2**5000), "2**5000", True),
        ("'é\\n'", "'\\u00e9\\n'", True),
        ("[1, 2]", "[2, 1]", False),
        ("'5'", "5", False),
        ("1.0", "1.001", False),
        ("None", "0", False),
        ("5", "object()", False),
    ],
)
def test_values_of_calls(literal: str, expression: str, same: bool) -> None:
    program = f"def f():\n    return {expression}"
    assert grade(make_code_problem(CodeTest("call", "f()", literal)), fenced(program)).correct is same


def test_output_is_compared_by_line_and_word() -> None:
    assert same_output("1 2\n3\n", "1 2  \n3\n\n")
    assert same_output("0.3333333", "0.33333334")
    assert not same_output("1000000", "1000001"), "integers are exact"
    assert not same_output("1000000007", "1000000007.0")
    assert not same_output("1000000007.0", "1000000907.0"), "whole numbers are exact"
    assert same_output("a b\r\nc\r\n", "a\tb\nc")
    assert not any(same_output("a\nb", f"a{end}b") for end in "\f\v\x1c\x85\u2028"), "other ends of lines"
    assert not same_output("a b", "a\u00a0b"), "another space"
    assert same_output("-1.50 2e3 .5 3.", "-1.5 2000 +0.5 3")
    assert not same_output("1\n2", "1 2"), "lines count"
    assert not same_output("YES", "yes")
    assert same_value(expected("[nan]".replace("nan", "1e999")), [float("inf")])


@pytest.mark.parametrize(
    "printed", ["1_5e-1", "1_5.0e-1", "0b1.5", "1,5", "1.5f", "١.5", "１.5", "1.٥", "nan", "inf", "1.5_0"]
)
@pytest.mark.parametrize("wanted", ["1.5", "0.15", "1e400"])
def test_a_number_is_printed_in_ascii_digits_without_separators(printed: str, wanted: str) -> None:
    assert not same_output(wanted, printed)
    assert not same_output(printed, wanted) or printed == wanted


@pytest.mark.parametrize("name", ["prints 100 MB", "reads stdin for ever", "fork bomb"])
def test_a_hostile_main_program_scores_zero(name: str) -> None:
    limits = sandbox.ProgramLimits(cpu_s=1, wall_s=6, memory=512 << 20)
    run = sandbox.run("stdin", EXHAUSTING[name], ["3\n"], limits, keep=[100])
    assert run.results is None or run.results[0][0] == "error"


def test_a_program_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("keep me", encoding="utf-8")
    writes = f"open({str(target)!r}, 'w').write('gone')\n{ADD}"
    deletes = f"import os\nos.remove({str(target)!r})\n{ADD}"
    for program in (writes, deletes):
        assert grade(make_code_problem(*CALL), fenced(program)).score == 0.0
    assert target.read_text(encoding="utf-8") == "keep me"
    own = f"open('mine.txt', 'w').write('fine')\n{ADD}"
    assert grade(make_code_problem(*CALL), fenced(own)).score == 1.0


def test_a_program_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "do not tell")
    program = "import os\ndef f():\n    return os.environ.get('SECRET_KEY')"
    assert grade(make_code_problem(CodeTest("call", "f()", "None")), fenced(program)).score == 1.0


def test_set_order_is_the_same_in_every_run() -> None:
    limits = sandbox.ProgramLimits(cpu_s=2, wall_s=10, memory=512 << 20)
    program = "def f():\n    return list({'a', 'b', 'c', 'd', 'e', 'f', 'g'})"
    first, second = (sandbox.run("call", program, ["f()"], limits) for _ in range(2))
    assert first.results == second.results is not None


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    open_before = len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.is_dir() else 0
    assert grade(make_code_problem(*CALL), fenced(f"open('x', 'w').write('y')\n{ADD}\n# left behind")).score == 1.0
    assert list(tmp_path.iterdir()) == []
    if open_before:
        assert len(list(DESCRIPTORS.iterdir())) == open_before
