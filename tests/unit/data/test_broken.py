"""Broken input of every kind: a clear error or a quarantined row, no partial file, the last version intact."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ops.benchmarks.quarantine import quarantine_file
from ops.benchmarks.store import raw_file, read_problems
from ops.config import BenchmarkSource, Recipe
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.stages.problems import materialize_raw
from tests.setups import without_workers
from tests.unit.data.upstream import lines, make_recipe, parquet

MATH = {"question": "What is $1+1$?", "answer": "2"}
CHOICE = {"question": "Which?", "choices": ["x", "y"], "answer": "B"}
PROGRAM = {"question": "Add.", "answer": "", "tests": [{"kind": "stdin", "input": "1", "output": "2"}]}
SOUND = {"math500": MATH, "mmlu": CHOICE, "livecodebench": PROGRAM}
HEAD = "id,question,answer\n"


def many(*extra: object, of: dict[str, Any] = MATH) -> list[object]:
    """Return 199 valid rows with the `extra` ones in the middle."""
    rows: list[object] = [{**of, "id": str(i)} for i in range(199)]
    return [*rows[:100], *extra, *rows[100:]]


class Row(NamedTuple):
    """One malformed row among valid ones, and the reason in the quarantine."""

    name: str
    content: bytes
    reason: str
    column: str
    benchmark: str = "math500"


class Fatal(NamedTuple):
    """A file that cannot be used, and the expected error."""

    name: str
    content: bytes | None
    said: str
    benchmark: str = "math500"


PACKED = gzip.compress(lines(many()))
ROWS = {
    "no-json": Row("r.jsonl", lines(many('{"id": "x", ')), "is not JSON", ""),
    "deeply-nested": Row("r.jsonl", lines(many("[" * 100_000)), "is not JSON", ""),
    "huge-number": Row("r.jsonl", lines(many(f'{{"id": {"9" * 5000}}}')), "is not JSON", ""),
    "no-object": Row("r.jsonl", lines(many("[1, 2]")), "is a list, not an object", ""),
    "latin-1": Row("r.jsonl", lines(many("X")).replace(b"X", b'{"id": "\xe9"}'), "is not UTF-8", ""),
    "duplicate-id": Row("r.jsonl", lines(many({**MATH, "id": "7"})), "'7' is already the id of line 8", "id"),
    "unreadable-gold": Row(
        "r.jsonl", lines(many({**MATH, "id": "x", "answer": "\\frac{1}{2"})), "its braces do not pair up", "answer"
    ),
    "nothing-to-compare": Row(
        "r.jsonl", lines(many({**MATH, "id": "x", "answer": "\\quad"})), "nothing is left of it", "answer"
    ),
    "ten-megabytes": Row(
        "r.jsonl", lines(many({**MATH, "id": "x", "question": "q" * 10_000_000})), "has 10,000,000 char", "question"
    ),
    "nul": Row("r.jsonl", lines(many({**MATH, "id": "x", "question": "a\0b"})), "holds a NUL character", "question"),
    "raw-nul": Row("r.jsonl", lines(many('{"id": "x", "question": "a\0b"}')), "is not JSON", ""),
    "choices-no-json": Row(
        "r.jsonl", lines(many({**CHOICE, "id": "x", "choices": "x, y"}, of=CHOICE)), "is text but", "choices", "mmlu"
    ),
    "too-many-cells": Row(
        "r.csv", HEAD.encode() + lines([*(f"{i},q,2" for i in range(199)), "x,q,2,3"]), "has 4 cells, the header 3", ""
    ),
    "too-few-cells": Row(
        "r.csv", HEAD.encode() + lines([*(f"{i},q,2" for i in range(199)), "x,q"]), "has 2 cells, the header 3", ""
    ),
    "text-after-quote": Row(
        "r.csv", HEAD.encode() + lines([*(f"{i},q,2" for i in range(199)), 'x,"q"q,2']), "is not CSV", ""
    ),
    "null-in-parquet": Row(
        "r.parquet",
        parquet([*({**MATH, "id": str(i)} for i in range(199)), {**MATH, "id": "x", "question": None}]),
        "is NoneType, not text",
        "question",
    ),
}
FATAL = {
    "absent": Fatal("r.jsonl", None, "does not exist"),
    "empty": Fatal("r.jsonl", b"", "has no rows"),
    "blank-lines": Fatal("r.jsonl", b"\n \n\r\n", "has no rows"),
    "header-only": Fatal("r.csv", HEAD.encode(), "has no rows"),
    "truncated-gzip": Fatal("r.jsonl.gz", PACKED[: len(PACKED) // 2], "cannot be unpacked"),
    "gzip-without-its-end": Fatal("r.jsonl.gz", PACKED[:-4], "cannot be unpacked"),
    "no-gzip": Fatal("r.jsonl.gz", lines(many()), "cannot be unpacked"),
    "truncated-parquet": Fatal("r.parquet", parquet([{**MATH, "id": "1"}])[:-20], "cannot be read"),
    "no-parquet": Fatal("r.parquet", lines(many()), "cannot be read"),
    "cut-inside-a-cell": Fatal("r.csv", HEAD.encode() + b'1,"never closed,2\n2,q,2\n', "ends inside a quoted cell"),
    "column-twice": Fatal("r.csv", b"id,question,question\n1,q,2\n", "names a column twice"),
    "another-kind": Fatal("r.xlsx", b"PK", "a type that is not supported"),
    "utf-16": Fatal("r.jsonl", lines(many()).decode().encode("utf-16"), "line 1 is not UTF-8"),
    "another-schema": Fatal(
        "r.jsonl", lines({"id": str(i), "text": "q", "gold": "2"} for i in range(9)), "no row has a column 'question'"
    ),
    "another-benchmark": Fatal("r.jsonl", lines(many(of=CHOICE)), "column 'choices' are offered, but"),
    "too-many-malformed": Fatal("r.jsonl", lines(many("{", "{", "{")), r"3 of 202 rows: are malformed \(1\.49%"),
}


@pytest.fixture
def recipe() -> Recipe:
    source = BenchmarkSource(source="file", train_file="last.jsonl")
    return make_recipe(**dict.fromkeys(("math500", "mmlu", "rlpr", "livecodebench"), source))


@pytest.fixture
def last_version(workspace: Workspace, recipe: Recipe) -> Callable[[str], bytes]:
    """`last_version(benchmark)`: materialize a valid file first; return the bytes that must stay."""

    def materialized(benchmark: str) -> bytes:
        rows = [{**SOUND[benchmark], "id": f"last{i}"} for i in range(3)]
        (workspace.root / "last.jsonl").write_bytes(lines(rows))
        materialize_raw(without_workers(workspace, recipe), benchmark)
        return stored(workspace, recipe, benchmark).read_bytes()

    return materialized


def stored(workspace: Workspace, recipe: Recipe, benchmark: str) -> Path:
    return raw_file(workspace, recipe, benchmark, "train")


def with_file(recipe: Recipe, benchmark: str, name: str, **fields: Any) -> Recipe:
    source = BenchmarkSource(source="file", train_file=name, **fields)
    return recipe.model_copy(update={"benchmarks": {**recipe.benchmarks, benchmark: source}})


@pytest.mark.parametrize("kind", ROWS)
def test_one_malformed_row_is_quarantined_with_its_reason(
    workspace: Workspace, recipe: Recipe, kind: str, last_version: Callable[[str], bytes]
) -> None:
    case = ROWS[kind]
    last_version(case.benchmark)
    (workspace.root / case.name).write_bytes(case.content)
    raw = materialize_raw(without_workers(workspace, with_file(recipe, case.benchmark, case.name)), case.benchmark)
    assert len(raw.train) == 199
    assert raw.quarantined == 1
    assert read_problems(stored(workspace, recipe, case.benchmark)) == raw.train
    (file,) = raw.quarantine
    assert file == quarantine_file(workspace, case.benchmark, "train")
    (entry,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert case.reason in entry["reason"]
    assert entry["column"] == case.column
    assert entry["file"] == str(workspace.root / case.name)
    assert entry["remedy"]
    assert "line" in entry or "row" in entry
    assert len(json.dumps(entry)) < 3_000, "to be read, not to be a copy of the row"


@pytest.mark.parametrize("kind", FATAL)
def test_unusable_input_is_reported_and_the_last_version_is_kept(
    workspace: Workspace, recipe: Recipe, kind: str, last_version: Callable[[str], bytes]
) -> None:
    case = FATAL[kind]
    before = last_version(case.benchmark)
    if case.content is not None:
        (workspace.root / case.name).write_bytes(case.content)
    with pytest.raises(DataError, match=case.said) as caught:
        materialize_raw(without_workers(workspace, with_file(recipe, case.benchmark, case.name)), case.benchmark)
    assert case.name in caught.value.file
    assert caught.value.remedy
    file = stored(workspace, recipe, case.benchmark)
    assert file.read_bytes() == before
    assert [problem.id for problem in read_problems(file)] == ["last0", "last1", "last2"]
    assert list(file.parent.iterdir()) == [file]


def test_too_many_are_refused_and_still_listed(
    workspace: Workspace, recipe: Recipe, last_version: Callable[[str], bytes]
) -> None:
    before = last_version("math500")
    bad = [{**MATH, "id": f"bad{i}", "answer": ""} for i in range(5)]
    (workspace.root / "r.jsonl").write_bytes(lines(many(*bad)))
    listed = quarantine_file(workspace, "math500", "train")
    with pytest.raises(DataError) as caught:
        materialize_raw(without_workers(workspace, with_file(recipe, "math500", "r.jsonl")), "math500")
    said = str(caught.value)
    assert "5 of 204 rows: are malformed (2.45%, allowed are 1.00%): line 101, column 'answer' is empty; " in said
    assert "and 2 more" in said
    assert str(listed) in said
    assert "benchmarks.math500.max_malformed_share" in said
    assert [json.loads(line)["row"]["id"] for line in listed.read_text(encoding="utf-8").splitlines()] == [
        f"bad{i}" for i in range(5)
    ]
    assert stored(workspace, recipe, "math500").read_bytes() == before
    tolerant = with_file(recipe, "math500", "r.jsonl", max_malformed_share=0.05)
    assert materialize_raw(without_workers(workspace, tolerant), "math500").quarantined == 5
    materialize_raw(without_workers(workspace, recipe), "math500")
    assert not listed.exists(), "a load without malformed rows leaves no list behind"


def test_a_malformed_test_file_does_not_affect_the_training_file(
    workspace: Workspace, recipe: Recipe, last_version: Callable[[str], bytes]
) -> None:
    before = last_version("math500")
    (workspace.root / "train.jsonl").write_bytes(lines(many()))
    (workspace.root / "test.jsonl").write_bytes(lines(["{"]))
    broken = with_file(recipe, "math500", "train.jsonl", test_file="test.jsonl")
    with pytest.raises(DataError, match=r"test\.jsonl"):
        materialize_raw(without_workers(workspace, broken), "math500")
    assert stored(workspace, recipe, "math500").read_bytes() == before


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv"])
@pytest.mark.parametrize("end", ["\r\n", "\r", "mixed"])
def test_every_line_end_is_read_alike(workspace: Workspace, recipe: Recipe, name: str, end: str) -> None:
    rows = [f'{{"id": "{i}", "question": "q", "answer": "2"}}' for i in range(6)]
    if name == "r.csv":
        rows = [HEAD.strip(), *(f'{i},"a\nb",2' for i in range(6))]
    ends = ["\r\n", "\n", "\r"] if end == "mixed" else [end]
    text = "".join(row + ends[i % len(ends)] for i, row in enumerate(rows))
    (workspace.root / name).write_bytes(b"\xef\xbb\xbf" + text.encode())  # and a byte order mark
    raw = materialize_raw(without_workers(workspace, with_file(recipe, "math500", name)), "math500")
    assert [problem.id for problem in raw.train] == [str(i) for i in range(6)]
    assert {problem.question for problem in raw.train} == {"a\nb" if name == "r.csv" else "q"}
