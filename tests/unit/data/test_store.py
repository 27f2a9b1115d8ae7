"""Problems on disk: files are read back, equal problems give equal bytes, and no partial file remains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.benchmarks.store import read_problems, write_problems
from ops.core.errors import DataError
from ops.core.problem import CodeTest, Problem

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
words = st.text(alphabet=characters, min_size=1).filter(str.strip)
problems = st.builds(
    Problem,
    id=words,
    benchmark=st.sampled_from(["math500", "mmlu"]),
    domain=st.sampled_from(["math", "code"]),
    split=st.sampled_from(["train", "test"]),
    question=words,
    answer=words,
    grader=st.sampled_from(["math", "code"]),
    choices=st.lists(words).map(tuple),
    tests=st.lists(st.builds(CodeTest, kind=st.just("stdin"), input=words, output=words)).map(tuple),
    family=words,
)


@settings(max_examples=30)
@given(st.lists(problems, max_size=5, unique_by=lambda problem: (problem.benchmark, problem.id)))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Problem]) -> None:
    folder = tmp_path_factory.mktemp("store")
    write_problems(folder / "one.jsonl", written)
    write_problems(folder / "two.jsonl", list(written))
    assert (folder / "one.jsonl").read_bytes() == (folder / "two.jsonl").read_bytes()
    if written:
        assert read_problems(folder / "one.jsonl") == written


def test_a_failure_while_writing_leaves_the_old_file(tmp_path: Path, make: Callable[..., Problem]) -> None:
    file = tmp_path / "deep" / "rows.jsonl"
    write_problems(file, [make("old")])

    def failing() -> Iterator[Problem]:
        yield make("new")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        write_problems(file, failing())
    with pytest.raises(UnicodeEncodeError):
        write_problems(file, [make("new", "\ud800")])
    assert [problem.id for problem in read_problems(file)] == ["old"]
    assert [path.name for path in file.parent.iterdir()] == ["rows.jsonl"]


def test_same_id_in_two_benchmarks_is_fine_and_in_one_is_not(
    tmp_path: Path, make: Callable[..., Problem]
) -> None:
    file = tmp_path / "rows.jsonl"
    write_problems(file, [make("1"), make("1", benchmark="mmlu")])
    assert len(read_problems(file)) == 2
    write_problems(file, [make("1"), make("1")])
    with pytest.raises(DataError, match="already the id of line 1"):
        read_problems(file)


@pytest.mark.parametrize("row", ['{"id": "1", "benchmark": "b"}', '{"id": "1", "benchmark": "b", "more": 1}'])
def test_rows_of_another_version_say_to_materialize_again(tmp_path: Path, row: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(row, encoding="utf-8")
    with pytest.raises(DataError, match="materialize it again"):
        read_problems(file)
