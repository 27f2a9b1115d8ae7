"""Broken benchmark files: each gives one error that names file, line, column and remedy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading import sound_problems
from ops.benchmarks.files import read_rows
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.rows import Row
from ops.config import BenchmarkSource
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace

MATH = {"id": "m1", "domain": "math", "question": "What is $1+1$?", "answer": "2", "grader": "math"}
CHOICE = {"id": "c1", "question": "Which?", "choices": ["x", "y"], "answer": "B", "grader": "mcq"}
CASE = {"input": "", "output": ""}
CODE = {"id": "p1", "question": "Add.", "answer": None, "grader": "code"}


def load(workspace: Workspace, file: Path, benchmark: str = "math500") -> list[Problem]:
    source = BenchmarkSource(source="file", test_file=str(file))
    return sound_problems(BENCHMARKS[benchmark], "test", source, workspace, 0)


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        (None, "(file)", "does not exist"),
        (b"", "(file)", "holds no rows"),
        (b"\n \n", "(file)", "holds no rows"),
        (b'\n{"id": ', "1 of 1 rows", "line 2 is not JSON"),
        (b"[1, 2]\n", "1 of 1 rows", "line 1 is a list, not an object"),
        (b"[" * 100_000, "1 of 1 rows", "line 1 is not JSON"),
        (b'{"id": %s}' % (b"9" * 5000), "1 of 1 rows", "line 1 is not JSON"),
        (b'{"id": "\xff\xfe"}\n', "1 of 1 rows", "line 1 is not UTF-8"),
        ('{"id": "ü"}\n'.encode("utf-16"), "2 of 2 rows", "line 1 is not UTF-8"),
    ],
    ids=["absent", "empty", "blank", "cut", "no-object", "deep", "huge-number", "not-utf8", "utf16"],
)
def test_unreadable_file_names_file_place_and_remedy(
    workspace: Workspace, tmp_path: Path, content: bytes | None, place: str, problem: str
) -> None:
    file = tmp_path / "rows.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(workspace, file)
    assert (caught.value.file, caught.value.where) == (str(file), place)
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_truncated_gzip_is_told_from_a_short_file(workspace: Workspace, tmp_path: Path) -> None:
    rows = "".join(json.dumps({**MATH, "id": str(i)}) + "\n" for i in range(500)).encode()
    file = tmp_path / "rows.jsonl.gz"
    packed = gzip.compress(rows)
    file.write_bytes(packed)
    assert len(load(workspace, file)) == 500
    for cut in (packed[: len(packed) // 2], packed[:-4], b"not gzip at all", packed[:20] + b"\0" * 50):
        file.write_bytes(cut)
        with pytest.raises(DataError, match="cannot be unpacked"):
            load(workspace, file)


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


def test_functional_test_with_a_value_that_is_not_json(workspace: Workspace, tmp_path: Path) -> None:
    tests = {"kind": "functional", "fn_name": "f", "public": [{"input": "[1", "output": "2"}]}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**CODE, "tests": tests}), encoding="utf-8")
    with pytest.raises(DataError, match="not JSON"):
        load(workspace, file, "livecodebench")


def test_duplicate_id_names_both_lines(workspace: Workspace, write_rows: Any) -> None:
    file = write_rows("rows.jsonl", [MATH, {**MATH, "id": "m2"}, MATH])
    with pytest.raises(DataError) as caught:
        load(workspace, file)
    assert caught.value.where == "1 of 3 rows"
    assert "line 3, column 'id' 'm1' is already the id of line 1" in caught.value.problem


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
