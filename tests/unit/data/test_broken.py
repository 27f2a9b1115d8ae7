"""Broken input of every kind: a clear error or a quarantined row, no partial file, the last version intact."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ops.benchmarks.problem_files import read_problems
from ops.benchmarks.quarantine import quarantine_file
from ops.config import BenchmarkSource
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.stages.raw_problems import RawProblems, materialize_raw
from tests.setups import without_workers
from tests.unit.data.inputs import lines, make_recipe, parquet

MATH = {"question": "What is $1+1$?", "answer": "2"}
CHOICE = {"question": "Which?", "choices": ["x", "y"], "answer": "B"}
SOUND = {"math500": MATH, "mmlu": CHOICE}
HEAD = b"id,question,answer\n"


def among(*extra: object, of: dict[str, Any] = MATH) -> bytes:
    """Return 199 valid rows with the `extra` ones in the middle."""
    rows: list[object] = [{**of, "id": str(i)} for i in range(199)]
    return lines([*rows[:100], *extra, *rows[100:]])


def faulty(of: dict[str, Any] = MATH, **fields: Any) -> bytes:
    """Return 199 valid rows and one with these fields."""
    return among({**of, "id": "x", **fields}, of=of)


def cells(last: str) -> bytes:
    """Return 199 valid lines of CSV and `last`."""
    return HEAD + lines([*(f"{i},q,2" for i in range(199)), last])


class Case(NamedTuple):
    """A file's content, None for no file, and the expected error or reason in the quarantine."""

    content: bytes | None
    said: str
    column: str = ""
    name: str = "r.jsonl"
    benchmark: str = "math500"


OTHER_COLUMNS = [{"id": str(i), "text": "q", "gold": "2"} for i in range(9)]
NO_QUESTION = [{**MATH, "id": str(i), "question": "q" if i < 199 else None} for i in range(200)]
PACKED = gzip.compress(among())
ROWS = {
    "no JSON": Case(among('{"id": "x", '), "is not JSON"),
    "deeply nested": Case(among("[" * 100_000), "is not JSON"),
    "huge number": Case(among(f'{{"id": {"9" * 5000}}}'), "is not JSON"),
    "no object": Case(among("[1, 2]"), "is a list, not an object"),
    "latin-1": Case(among("X").replace(b"X", b'{"id": "\xe9"}'), "is not UTF-8"),
    "duplicate id": Case(faulty(id="7"), "'7' is already the id of line 8", "id"),
    "unreadable gold": Case(faulty(answer="\\frac{1}{2"), "its braces do not pair up", "answer"),
    "nothing to compare": Case(faulty(answer="\\quad"), "nothing is left of it", "answer"),
    "ten megabytes": Case(faulty(question="q" * 10_000_000), "has 10,000,000 char", "question"),
    "NUL": Case(faulty(question="a\0b"), "holds a NUL character", "question"),
    "raw NUL": Case(among('{"id": "x", "question": "a\0b"}'), "is not JSON"),
    "choices that are no JSON": Case(faulty(CHOICE, choices="x, y"), "is text but", "choices", benchmark="mmlu"),
    "too many cells": Case(cells("x,q,2,3"), "has 4 cells, the header 3", name="r.csv"),
    "too few cells": Case(cells("x,q"), "has 2 cells, the header 3", name="r.csv"),
    "text after a quote": Case(cells('x,"q"q,2'), "is not CSV", name="r.csv"),
    "null in Parquet": Case(parquet(NO_QUESTION), "is NoneType, not text", "question", "r.parquet"),
}
FATAL = {
    "absent": Case(None, "does not exist"),
    "folder": Case(None, "does not exist", name="data"),
    "empty": Case(b"", "has no rows"),
    "blank lines": Case(b"\n \n\r\n", "has no rows"),
    "header only": Case(HEAD, "has no rows", name="r.csv"),
    "truncated gzip": Case(PACKED[: len(PACKED) // 2], "cannot be unpacked", name="r.jsonl.gz"),
    "gzip without its end": Case(PACKED[:-4], "cannot be unpacked", name="r.jsonl.gz"),
    "no gzip": Case(among(), "cannot be unpacked", name="r.jsonl.gz"),
    "truncated Parquet": Case(parquet([{**MATH, "id": "1"}])[:-20], "cannot be read", name="r.parquet"),
    "no Parquet": Case(among(), "cannot be read", name="r.parquet"),
    "cut inside a cell": Case(HEAD + b'1,"never closed,2\n2,q,2\n', "ends inside a quoted cell", name="r.csv"),
    "column twice": Case(b"id,question,question\n1,q,2\n", "names a column twice", name="r.csv"),
    "another kind": Case(b"PK", r"a type that is not supported \(\.xlsx\)\. Convert it to \.jsonl", name="r.xlsx"),
    "utf-16": Case(among().decode().encode("utf-16"), "line 1 is not UTF-8"),
    "another schema": Case(lines(OTHER_COLUMNS), "no row has a column 'question'"),
    "another benchmark": Case(among(of=CHOICE), "column 'choices' are offered, but"),
    "too many malformed": Case(among("{", "{", "{"), r"3 of 202 rows: are malformed \(1\.49%"),
}


def load(workspace: Workspace, name: str, benchmark: str = "math500", **fields: Any) -> RawProblems:
    """Materialize the benchmark with this training file."""
    source = BenchmarkSource(source="file", train_file=name, **fields)
    return materialize_raw(without_workers(workspace, make_recipe(**{benchmark: source})), benchmark)


def last_version(workspace: Workspace, benchmark: str = "math500") -> Path:
    """Materialize a valid file first; return the stage's file."""
    (workspace.root / "last.jsonl").write_bytes(lines({**SOUND[benchmark], "id": f"last{i}"} for i in range(3)))
    [file] = load(workspace, "last.jsonl", benchmark).files
    return file


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_one_malformed_row_is_quarantined_with_its_reason(workspace: Workspace, case: Case) -> None:
    stored = last_version(workspace, case.benchmark)
    (workspace.root / case.name).write_bytes(case.content or b"")
    raw = load(workspace, case.name, case.benchmark)
    assert (len(raw.train), raw.quarantined) == (199, 1)
    assert read_problems(stored) == raw.train
    assert raw.quarantine == (quarantine_file(workspace, case.benchmark, "train"),)
    [entry] = map(json.loads, raw.quarantine[0].read_text(encoding="utf-8").splitlines())
    assert case.said in entry["reason"]
    assert (entry["column"], entry["file"]) == (case.column, str(workspace.root / case.name))
    assert entry["remedy"]
    assert "line" in entry or "row" in entry
    assert len(json.dumps(entry)) < 3_000, "to be read, not to be a copy of the row"


@pytest.mark.parametrize("case", FATAL.values(), ids=FATAL)
def test_unusable_input_is_reported_and_the_last_version_is_kept(workspace: Workspace, case: Case) -> None:
    file = last_version(workspace, case.benchmark)
    before = file.read_bytes()
    if case.content is not None:
        (workspace.root / case.name).write_bytes(case.content)
    with pytest.raises(DataError, match=case.said) as caught:
        load(workspace, case.name, case.benchmark)
    assert case.name in caught.value.file
    assert caught.value.remedy
    assert file.read_bytes() == before
    assert [problem.id for problem in read_problems(file)] == ["last0", "last1", "last2"]
    assert list(file.parent.iterdir()) == [file]


def test_too_many_are_refused_and_still_listed(workspace: Workspace) -> None:
    file = last_version(workspace)
    before = file.read_bytes()
    bad = [{**MATH, "id": f"bad{i}", "answer": ""} for i in range(5)]
    (workspace.root / "r.jsonl").write_bytes(among(*bad))
    listed = quarantine_file(workspace, "math500", "train")
    with pytest.raises(DataError) as caught:
        load(workspace, "r.jsonl")
    said = str(caught.value)
    assert "5 of 204 rows: are malformed (2.45%, allowed are 1.00%): line 101, column 'answer' is empty; " in said
    assert "and 2 more" in said
    assert str(listed) in said
    assert "benchmarks.math500.max_malformed_share" in said
    rows = [json.loads(line)["row"]["id"] for line in listed.read_text(encoding="utf-8").splitlines()]
    assert rows == [f"bad{i}" for i in range(5)]
    assert file.read_bytes() == before
    assert load(workspace, "r.jsonl", max_malformed_share=0.05).quarantined == 5
    load(workspace, "last.jsonl")
    assert not listed.exists(), "a load without malformed rows leaves no list behind"


def test_a_malformed_test_file_does_not_affect_the_training_file(workspace: Workspace) -> None:
    file = last_version(workspace)
    before = file.read_bytes()
    (workspace.root / "train.jsonl").write_bytes(among())
    (workspace.root / "test.jsonl").write_bytes(lines(["{"]))
    with pytest.raises(DataError, match=r"test\.jsonl"):
        load(workspace, "train.jsonl", test_file="test.jsonl")
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv"])
@pytest.mark.parametrize("end", ["\r\n", "\r", "mixed"])
def test_every_line_end_is_read_alike(workspace: Workspace, name: str, end: str) -> None:
    rows = [f'{{"id": "{i}", "question": "q", "answer": "2"}}' for i in range(6)]
    if name == "r.csv":
        rows = [HEAD.decode().strip(), *(f'{i},"a\nb",2' for i in range(6))]
    ends = ["\r\n", "\n", "\r"] if end == "mixed" else [end]
    text = "".join(row + ends[i % len(ends)] for i, row in enumerate(rows))
    (workspace.root / name).write_bytes(b"\xef\xbb\xbf" + text.encode())  # and a byte order mark
    raw = load(workspace, name)
    assert [problem.id for problem in raw.train] == [str(i) for i in range(6)]
    assert {problem.question for problem in raw.train} == {"a\nb" if name == "r.csv" else "q"}
