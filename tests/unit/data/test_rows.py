"""Broken benchmark files: each gives one error that names file, line, column and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.benchmarks.files import read_rows
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.rows import Row
from ops.config import BenchmarkSource
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from tests.loading import sound_problems

MATH = {"id": "m1", "domain": "math", "question": "What is $1+1$?", "answer": "2", "grader": "math"}
CHOICE = {"id": "c1", "question": "Which?", "choices": ["x", "y"], "answer": "B", "grader": "mcq"}
CASE = {"input": "", "output": ""}
FUNCTIONAL = {"kind": "functional", "fn_name": "f", "public": [{"input": "[1", "output": "2"}]}
CODE = {"id": "p1", "question": "Add.", "answer": None, "grader": "code"}


def load(workspace: Workspace, file: Path, benchmark: str = "math500") -> list[Problem]:
    source = BenchmarkSource(source="file", test_file=str(file))
    return sound_problems(BENCHMARKS[benchmark], "test", source, workspace, 0)


@pytest.mark.parametrize(
    ("benchmark", "row", "column", "problem"),
    [
        ("math500", {"answer": "2", "id": "m"}, "question", "is missing"),
        ("math500", {"answer": "2", "question": "q"}, "id", "is missing"),
        ("math500", {"question": "q", "id": "m"}, "answer", "is missing"),
        ("math500", {**MATH, "answer": None}, "answer", "is NoneType"),
        ("math500", {**MATH, "answer": " "}, "answer", "is empty"),
        ("math500", {**MATH, "question": "\n"}, "question", "is empty"),
        ("math500", {**MATH, "question": ["q"]}, "question", "is list"),
        ("math500", {**MATH, "question": "\ud800"}, "question", "surrogate"),
        ("math500", {**MATH, "subject": {"a": 1}}, "subject", "is dict"),
        ("math500", {**MATH, "domain": "code"}, "domain", "is 'code'"),
        ("math500", {**MATH, "grader": "text"}, "grader", "is 'text'"),
        ("mmlu", {**CHOICE, "choices": None}, "choices", "is not a list"),
        ("mmlu", {**CHOICE, "choices": ["x"]}, "choices", "is not a list of 2"),
        ("mmlu", {**CHOICE, "choices": ["x", None]}, "choices", "is NoneType"),
        ("mmlu", {**CHOICE, "answer": "C"}, "answer", "none of A, B"),
        ("mmlu", {**CHOICE, "answer": "AB"}, "answer", "none of A, B"),
        ("livecodebench", {**CODE, "tests": None}, "tests", "not a list or an object"),
        ("livecodebench", {**CODE, "tests": []}, "tests", "holds no test"),
        ("livecodebench", {**CODE, "tests": {"kind": "stdin"}}, "tests", "holds no test"),
        ("livecodebench", {**CODE, "tests": {"kind": "odd", "public": [CASE]}}, "tests", "odd"),
        ("livecodebench", {**CODE, "tests": {"kind": "stdin", "public": [{"input": ""}]}}, "tests", "output"),
        ("livecodebench", {**CODE, "tests": {"kind": "stdin", "public": ["1"]}}, "tests", "no object"),
        ("livecodebench", {**CODE, "tests": [{"kind": "call"}]}, "tests", "'input'"),
        ("livecodebench", {**CODE, "tests": [{"input": "1"}]}, "tests", "not of kind"),
        ("livecodebench", {**CODE, "tests": [{**CASE, "kind": "stdin", "output": 3}]}, "tests", "not"),
        ("livecodebench", {**CODE, "tests": FUNCTIONAL}, "tests", "not JSON"),
        ("bigcodebench", {**CODE, "answer": "x", "tests": {"kind": "unittest"}}, "tests", "'code'"),
    ],
)  # fmt: skip
def test_malformed_row_names_line_column_and_remedy(
    workspace: Workspace, tmp_path: Path, benchmark: str, row: dict[str, Any], column: str, problem: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n" + json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load(workspace, file, benchmark)
    missing = f"no row has a column {column!r}" if problem == "is missing" else f"line 2, column {column!r} "
    assert missing in caught.value.problem
    assert problem == "is missing" or problem in caught.value.problem
    assert caught.value.remedy


def test_line_separators_inside_text_do_not_split_a_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes('{"question": "a\u2028b\\r"}\r\n{"question": "c"}'.encode())
    assert [row.text("question") for row in read_rows(file)] == ["a\u2028b\r", "c"]


def test_numbers_and_levels_are_read_as_text(workspace: Workspace, write_rows: Any) -> None:
    rows = [
        {**MATH, "id": i, "answer": 7, "level": level}
        for i, level in enumerate([3, "Level 3", "Level ?", None])
    ]
    problems = load(workspace, write_rows("rows.jsonl", rows))
    assert [(p.id, p.answer, p.level) for p in problems] == [
        ("0", "7", "3"), ("1", "7", "3"), ("2", "7", ""), ("3", "7", ""),
    ]  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([*MATH, "choices", "tests", "level"]), st.none() | st.text() | st.integers()
    )
)
def test_any_row_is_a_problem_or_a_data_error(values: dict[str, Any]) -> None:
    for benchmark in ("math500", "mmlu", "livecodebench", "bigcodebench"):
        try:
            problems = BENCHMARKS[benchmark].problems(iter([Row("f", 1, values)]), "test")
        except DataError as error:
            assert error.where.startswith("line 1")
        else:
            assert problems[0].question.strip()
            assert problems[0].id
