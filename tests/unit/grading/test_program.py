"""Which block of a response is the program: every code form of the corpus by its extraction, without running it."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.problem import CodeTest
from ops.grading.program import called, program
from tests.unit.grading.forms import Form, load

FORMS = [form for form in load() if form.problem.grader == "code"]
OUTCOMES = Path(__file__).parents[4] / "shared" / "outcomes" / "livecodebench_v1_o1-preview.jsonl.gz"


def same(left: str, right: str) -> bool:
    """Return whether two texts are the same program, up to comments and blank space."""
    try:
        return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))
    except SyntaxError:
        return False


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.kind}-{'right' if form.right else 'wrong'}-{form.why}")
def test_the_gold_program_is_extracted_where_it_is_the_answer(form: Form) -> None:
    extracted = program(form.response, form.problem.tests)
    assert same(form.problem.answer, extracted) is form.right, extracted


@pytest.mark.skipif(not OUTCOMES.is_file(), reason="no recorded outcomes beside the project")
def test_recorded_responses_give_the_benchmarks_own_extraction() -> None:
    """Equal programs have equal verdicts: all 400 recorded responses, without running one."""

    def first(stored: str | list[Any]) -> str:
        return str((json.loads(stored) if isinstance(stored, str) else stored)[0])

    with gzip.open(OUTCOMES, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    pairs = [(first(row["output_list"]), first(row["code_list"])) for row in rows]
    assert len(pairs) == 400
    assert [code for response, code in pairs if program(response).strip() != code.strip()] == []


def test_names_that_the_tests_call() -> None:
    tests = (
        CodeTest("call", "Solution().total([1], f(2))", "3"),
        CodeTest("stdin", "main()", ""),
        CodeTest("unittest", "import unittest\nclass TestCases(unittest.TestCase):\n    x = task_func(1)"),
    )
    assert {"Solution", "task_func", "unittest"} <= called(tests)
    assert not called(tests) & {"TestCases", "main", "total", "TestCase"}


MARKS = st.sampled_from(
    ["```", "~~~", "```python", "````", "\n", " ", ">", "<code>", "</code>", "def f():", "x = 1", "f()"]
)


@given(st.text() | st.lists(MARKS).map("".join) | st.lists(MARKS).map("\n".join))
def test_any_text_has_a_program_or_none(response: str) -> None:
    assert isinstance(program(response), str)


@pytest.mark.parametrize("repetitions", [25_000, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "part", ["```", "~~~\n```python\n", "def f(\n\n", "<code>", "<code>x = 1</code>", "> ", "def f(x):\n", "[PYTHON]"]
)
def test_a_long_response_of_marks_is_read_once(part: str, repetitions: int) -> None:
    """Linear: what a hostile response could make quadratic would not end within the suite's time-out."""
    assert isinstance(program(part * repetitions), str)
