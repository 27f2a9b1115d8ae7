"""Programs: which block of a response is the program, how tests judge it, and what it may do meanwhile."""

from __future__ import annotations

import ast
import unittest
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.problem import CodeTest
from ops.grading import GRADERS, grade, sandbox
from ops.grading.negative_controls import list_tests, make_negative_control
from ops.grading.program import extract_program, find_tested_names
from ops.grading.values import is_same_output, is_same_value, parse_expected
from tests.builders import fenced, make_code_problem, make_unit_test
from tests.unit.grading.forms import Form, load
from tests.unit.grading.hostile import EXHAUSTING

FORMS = [form for form in load() if form.problem.grader == "code"]


def same(left: str, right: str) -> bool:
    """Return whether two texts are the same program, up to comments and blank space."""
    try:
        return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))
    except SyntaxError:
        return False


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.kind}-{'right' if form.right else 'wrong'}-{form.why}")
def test_the_gold_program_is_extracted_where_it_is_the_answer(form: Form) -> None:
    extracted = GRADERS["code"].extract_answer(form.problem, form.response)
    assert same(form.problem.answer, extracted) is form.right, extracted


def test_names_that_the_tests_call() -> None:
    tests = (
        CodeTest("call", "Solution().total([1], f(2))", "3"),
        CodeTest("stdin", "main()", ""),
        CodeTest("unittest", "import unittest\nclass TestCases(unittest.TestCase):\n    x = task_func(1)"),
    )
    assert {"Solution", "task_func", "unittest"} <= find_tested_names(tests)
    assert not find_tested_names(tests) & {"TestCases", "main", "total", "TestCase"}


MARKS = st.sampled_from(
    ["```", "~~~", "```python", "````", "\n", " ", ">", "<code>", "</code>", "def f():", "x = 1", "f()"]
)


@given(st.text() | st.lists(MARKS).map("".join) | st.lists(MARKS).map("\n".join))
def test_any_text_has_a_program_or_none(response: str) -> None:
    assert isinstance(extract_program(response), str)


@pytest.mark.parametrize("repetitions", [25_000, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "part", ["```", "~~~\n```python\n", "def f(\n\n", "<code>", "<code>x = 1</code>", "> ", "def f(x):\n", "[PYTHON]"]
)
def test_a_long_response_of_marks_is_read_once(part: str, repetitions: int) -> None:
    """Linear: what a hostile response could make quadratic would not end within the suite's time-out."""
    assert isinstance(extract_program(part * repetitions), str)


# ── verdicts ─────────────────────────────────────────────────────────────────

DESCRIPTORS = Path("/proc/self/fd")
SQUARE = "n = int(input())\nprint(n * n)"
ADD = "def f(a, b):\n    return a + b"
STDIN = (CodeTest("stdin", "3\n", "9\n"), CodeTest("stdin", "4\n", "16\n"))
CALL = (CodeTest("call", "f(2, 3)", "5"), CodeTest("call", "f([1], (2,)[:1] and [2])", "[1, 2]"))
TOTAL = "    def total(self, xs: List[int]) -> int:\n        return sum(xs) + pow(2, 3, 7) - 1"


@pytest.mark.parametrize(
    ("tests", "response"),
    [
        pytest.param((*CALL, make_unit_test("self.assertEqual(f(1, 2), 3)")), fenced(ADD), id="tests of two kinds"),
        pytest.param(CALL, f"```python\nbroken(\n```\nBetter:\n{fenced(ADD)}", id="a block behind a broken one"),
        pytest.param(
            STDIN,
            fenced("import threading\nn = int(input())\nthreading.Thread(target=lambda: print(n * n)).start()"),
            id="a thread that prints behind the end",
        ),
        pytest.param(
            STDIN, fenced("import atexit\nn = int(input())\natexit.register(lambda: print(n * n))"), id="prints at exit"
        ),
        pytest.param(STDIN, fenced(f"{SQUARE}\nexit()\nprint('more')"), id="leaves by exit"),
        pytest.param(STDIN, fenced(f"{SQUARE}\nquit()\nprint('more')"), id="leaves by quit"),
        pytest.param(
            (CodeTest("call", "Solution().total([1, 2])", "3"),),
            fenced(f"class Solution:\n{TOTAL}"),
            id="a solution class with its usual imports",
        ),
        pytest.param(CALL, fenced(f"open('mine.txt', 'w').write('fine')\n{ADD}"), id="writes into its own folder"),
    ],
)
def test_a_right_program_scores_one(tests: tuple[CodeTest, ...], response: str) -> None:
    assert grade(make_code_problem(*tests), response).score == 1.0


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


@pytest.mark.parametrize(
    ("wanted", "printed", "same"),
    [
        ("1 2\n3\n", "1 2  \n3\n\n", True),
        ("0.3333333", "0.33333334", True),
        ("a b\r\nc\r\n", "a\tb\nc", True),
        ("-1.50 2e3 .5 3.", "-1.5 2000 +0.5 3", True),
        pytest.param("1000000", "1000001", False, id="integers are exact"),
        pytest.param("1000000007", "1000000007.0", False, id="an integer is no decimal"),
        pytest.param("1000000007.0", "1000000907.0", False, id="whole numbers are exact"),
        *(pytest.param("a\nb", f"a{end}b", False, id=f"another end of a line {end!r}") for end in "\f\v\x1c\x85\u2028"),
        pytest.param("a b", "a\u00a0b", False, id="another space"),
        pytest.param("1\n2", "1 2", False, id="lines count"),
        ("YES", "yes", False),
    ],
)
def test_output_is_compared_by_line_and_word(wanted: str, printed: str, same: bool) -> None:
    assert is_same_output(wanted, printed) is same


def test_an_infinite_value_equals_itself() -> None:
    assert is_same_value(parse_expected("[1e999]"), [float("inf")])


@pytest.mark.parametrize(
    "printed", ["1_5e-1", "1_5.0e-1", "0b1.5", "1,5", "1.5f", "١.5", "１.5", "1.٥", "nan", "inf", "1.5_0"]
)
@pytest.mark.parametrize("wanted", ["1.5", "0.15", "1e400"])
def test_a_number_is_printed_in_ascii_digits_without_separators(printed: str, wanted: str) -> None:
    assert not is_same_output(wanted, printed)
    assert not is_same_output(printed, wanted) or printed == wanted


@pytest.mark.parametrize("name", ["prints 100 MB", "reads stdin for ever", "fork bomb"])
def test_a_hostile_main_program_scores_zero(name: str) -> None:
    limits = sandbox.ProgramLimits(cpu_s=1, wall_s=6, memory_bytes=512 << 20)
    run = sandbox.run("stdin", EXHAUSTING[name], ["3\n"], limits, max_output_bytes=[100])
    assert run.results is None or run.results[0][0] == "error"


@pytest.mark.parametrize("attack", ["open({!r}, 'w').write('gone')", "import os\nos.remove({!r})"])
def test_a_program_cannot_write_outside_its_folder(attack: str, tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("keep me", encoding="utf-8")
    assert grade(make_code_problem(*CALL), fenced(f"{attack.format(str(target))}\n{ADD}")).score == 0.0
    assert target.read_text(encoding="utf-8") == "keep me"


def test_a_program_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "do not tell")
    program = "import os\ndef f():\n    return os.environ.get('SECRET_KEY')"
    assert grade(make_code_problem(CodeTest("call", "f()", "None")), fenced(program)).score == 1.0


def test_set_order_is_the_same_in_every_run() -> None:
    limits = sandbox.ProgramLimits(cpu_s=2, wall_s=10, memory_bytes=512 << 20)
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


# ── controls: every assertion that is certainly reached turns into one that a correct program fails ──

HEAD = "import unittest\nfrom unittest import mock\nclass T(unittest.TestCase):\n"
SURE = {
    "a number": "self.assertEqual(f(3), 3)",
    "the expected value first": "self.assertEqual([1, 2], [1, 2])",
    "a computed value": "x = f(4)\n        self.assertEqual(x, 2 * 2)",
    "nearly": "self.assertAlmostEqual(f(0.5), 0.5, places=3)",
    "a text": "self.assertEqual(f('a'), 'a')",
    "nothing": "self.assertEqual(f(None), None)",
    "true": "self.assertTrue(f(1) == 1)",
    "false": "self.assertFalse(f(1) == 2)",
    "membership": "self.assertIn(f(1), [1, 2])",
    "order": "self.assertGreater(f(2), 1)",
    "an instance": "self.assertIsInstance(f(1), int)",
    "not none": "self.assertIsNotNone(f(1))",
    "an error": "with self.assertRaises(KeyError):\n            raise KeyError(f(1))",
    "an error of a call": "self.assertRaises(ValueError, int, f('x'))",
    "a mock": "m = mock.Mock()\n        m(f(1))\n        m.assert_called_once_with(1)",
    "assert": "assert f(1) == 1",
    "within a block": "with self.subTest(n=1):\n            self.assertEqual(f(1), 1)",
    "a helper": "self.check(f(1))",
}
NOT_SURE = {
    "a condition": "if f(0):\n            self.assertEqual(f(1), 1)",
    "a loop": "for n in f([]):\n            self.assertEqual(n, 1)",
    "after the end": "return\n        self.assertEqual(f(1), 1)",
    "an error that is caught": "try:\n            self.assertEqual(f(1), 1)\n"
    "        except AssertionError:\n            pass",
    "no assertion": "f(1)",
}


def passed(code: str) -> bool:
    names = {"f": lambda value: value}
    exec(code, names)
    result = unittest.TestResult()
    unittest.TestLoader().loadTestsFromTestCase(names["T"]).run(result)  # type: ignore[arg-type]
    assert result.testsRun == 1
    return result.wasSuccessful()


def module(body: str) -> str:
    helper = "    def check(self, value):\n        self.assertEqual(value, 1)\n"
    return f"{HEAD}    def test_it(self):\n        {body}\n{helper}"


@pytest.mark.parametrize("name", SURE)
def test_a_right_program_passes_the_test_and_fails_its_control(name: str) -> None:
    code = module(SURE[name])
    wrong = make_negative_control(code, Random(0))
    assert wrong is not None
    assert wrong.must_fail == {"T.test_it"} == list_tests(code)
    assert (passed(code), passed(wrong.code)) == (True, False)


@pytest.mark.parametrize("name", NOT_SURE)
def test_a_test_that_a_correct_program_may_pass_is_not_a_control(name: str) -> None:
    assert passed(module(NOT_SURE[name]))
    assert make_negative_control(module(NOT_SURE[name]), Random(0)) is None


@pytest.mark.parametrize("code", ["", "def broken(", "x = 1", "\x00"])
def test_a_file_without_tests_has_no_control(code: str) -> None:
    assert make_negative_control(code, Random(0)) is None
    assert list_tests(code) == frozenset()
