"""A GPQA file with every common kind of damage: no message contains a word of a question, choice or answer.

Every text value of the planted records contains the word `zephyr`; a load either fails or quarantines, and neither the
error with its traceback, nor the log, nor the quarantine, nor the output may contain that word.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.problem_files import read_problems, write_problems
from ops.benchmarks.quarantine import check_malformed_share, quarantine_file, quarantine_rows
from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from tests.loading import sound_problems
from tests.unit.data.inputs import at, lines, make, parquet, read_files, table

Places = Callable[..., set[str]]
WORD = "zephyr"
GPQA = BENCHMARKS["gpqa_diamond"]
TEXTS = ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
COLUMNS = ("Record ID", *TEXTS, "Subdomain")


def record(number: int, **changed: Any) -> dict[str, Any]:
    """One row of the hub's columns; its texts are one word each, as short as an id."""
    texts = {column: f"{WORD}{''.join(column.split())}{number}" for column in TEXTS}
    return {"Record ID": f"rec{number}", **texts, "Subdomain": "Physics", **changed}


def ours(number: int, **changed: Any) -> dict[str, Any]:
    """One row in the columns of our own files."""
    row = {"id": f"q{number}", "question": f"{WORD} {number}?", "answer": "A"}
    return {**row, "choices": [f"{WORD}{letter}{number}" for letter in "abcd"], **changed}


RECORDS = [record(n) for n in range(3)]


def export(rows: Sequence[dict[str, Any]], *, head: Sequence[str] | None = None) -> bytes:
    return table([head or list(rows[0]), *(list(row.values()) for row in rows)])


def turned(left: str, right: str) -> bytes:
    """An export with the values of two columns exchanged."""
    return export([{**row, left: row[right], right: row[left]} for row in RECORDS])


BROKEN: dict[str, tuple[str, bytes]] = {
    "no header": ("g.csv", table([list(row.values()) for row in RECORDS])),
    "no header, tabs": ("g.csv", table([list(row.values()) for row in RECORDS], "\t")),
    "another delimiter": ("g.csv", table([COLUMNS, *(list(row.values()) for row in RECORDS)], ";")),
    "no header as Parquet": ("g.parquet", parquet([{str(v): str(v) for v in record(0).values()}])),
    "texts as JSON names": ("g.jsonl", lines([{value: name for name, value in row.items()} for row in RECORDS])),
    "a column of its own": ("g.jsonl", lines([{"id": "q1", f"{WORD} note": "x"}, ours(2)])),
    "no question": ("g.jsonl", lines([{k: v for k, v in ours(1).items() if k != "question"}])),
    "id and question exchanged": ("g.csv", turned("Record ID", "Question")),
    "id and right answer exchanged": ("g.csv", turned("Record ID", "Correct Answer")),
    "id and wrong answer exchanged": ("g.csv", turned("Record ID", "Incorrect Answer 3")),
    "columns shifted by one": ("g.csv", export(RECORDS, head=[*COLUMNS[1:], COLUMNS[0]])),
    "text as id": ("g.csv", export([record(n, **{"Record ID": f"{WORD} asks {n}?"}) for n in range(3)])),
    "one text as every id": ("g.csv", export([record(n, **{"Record ID": WORD}) for n in range(3)])),
    "text as id in our columns": ("g.jsonl", lines([ours(1, id=WORD), ours(2, id=f"{WORD} 2"), ours(3, id=WORD)])),
    "text as id and a fault": ("g.jsonl", lines([ours(1, id=f"{WORD}", answer=""), ours(2)])),
    "duplicate id": ("g.csv", export([record(1), record(1)])),
    "duplicate text as id": ("g.jsonl", lines([ours(1, id=f"{WORD} 1"), ours(2, id=f"{WORD} 1")])),
    "one choice": ("g.jsonl", lines([ours(1, choices=[f"{WORD} a"])])),
    "thirty choices": ("g.jsonl", lines([ours(1, choices=[f"{WORD} {n}" for n in range(30)])])),
    "choices as text": ("g.jsonl", lines([ours(1, choices=f"{WORD} a, {WORD} b")])),
    "choices as broken JSON": ("g.jsonl", lines([ours(1, choices=f'["{WORD} a", ')])),
    "a choice that is a list": ("g.jsonl", lines([ours(1, choices=[[WORD], WORD])])),
    "text as the letter": ("g.jsonl", lines([ours(1, answer=f"{WORD}a1")])),
    "text as the grader": ("g.jsonl", lines([ours(1, grader=WORD)])),
    "text as the domain": ("g.jsonl", lines([ours(1, domain=WORD)])),
    "text as the release": ("g.jsonl", lines([ours(1, release=WORD, answer="Z")])),
    "question as a list": ("g.jsonl", lines([ours(1, question=[WORD])])),
    "question with a NUL": ("g.jsonl", lines([ours(1, question=f"{WORD}\0")])),
    "question with a surrogate": ("g.jsonl", lines([ours(1, question=f"{WORD}\ud800")])),
    "a huge question": ("g.jsonl", lines([ours(1, question=WORD * 50_000)])),
    "an empty answer": ("g.csv", export([record(1, **{"Incorrect Answer 2": ""}), record(2)])),
    "a cut JSON line": ("g.jsonl", lines([json.dumps(ours(1))[:40], ours(2)])),
    "JSON without quotes": ("g.jsonl", lines([f"{{id: q1, question: {WORD}}}"])),
    "a JSON list": ("g.jsonl", lines([[WORD, WORD]])),
    "a JSON string": ("g.jsonl", lines([f'"{WORD}"'])),
    "latin-1": ("g.csv", export([record(1, Question=f"{WORD} é?")]).decode().encode("latin-1")),
    "latin-1 header": ("g.csv", table([[f"{WORD} é"], ["x"]]).decode().encode("latin-1")),
    "latin-1 JSON": ("g.jsonl", f'{{"id": "q1", "question": "{WORD} é"}}\n'.encode("latin-1")),
    "utf-16": ("g.csv", export(RECORDS).decode().encode("utf-16")),
    "too many cells": ("g.csv", export(RECORDS) + f"rec9,{WORD},{WORD},{WORD}\n".encode()),
    "text after a quote": ("g.csv", export(RECORDS) + f'rec9,"{WORD}"{WORD}\n'.encode()),
    "a quote never closed": ("g.csv", export(RECORDS) + f'rec9,"{WORD}\n'.encode()),
    "a quote in the header": ("g.csv", f'"{WORD}"{WORD},x\n'.encode() + export(RECORDS)),
    "a column twice": ("g.csv", table([[WORD, WORD], ["a", "b"]])),
    "no Parquet": ("g.parquet", export(RECORDS)),
    "no gzip": ("g.jsonl.gz", lines([ours(1)])),
    "another suffix": ("g.tsv", export(RECORDS)),
}


@pytest.fixture
def places(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Places:
    """`places(error, **more texts)`: where a failed load shows the word."""
    caplog.set_level(logging.DEBUG)

    def found(error: DataError, **more: str) -> set[str]:
        traced = "".join(traceback.format_exception(error)).replace(repr(WORD), "")  # without the test's own lines
        said = {"error": str(error), "fields": f"{error.where} {error.problem} {error.remedy}", "traceback": traced}
        texts = said | {"log": caplog.text, "printed": "".join(capfd.readouterr())} | more
        return {place for place, text in texts.items() if WORD in text.lower()}

    return found


@pytest.mark.parametrize("way", BROKEN)
def test_no_damage_of_a_file_reveals_its_texts(workspace: Workspace, places: Places, way: str) -> None:
    name, content = BROKEN[way]
    (workspace.root / name).write_bytes(content)
    source = BenchmarkSource(source="file", test_file=name, max_malformed_share=0.0)
    listed = quarantine_file(workspace, GPQA.name, "test")
    with pytest.raises(DataError) as caught:
        loaded = GPQA.load("test", source, workspace, 0)
        quarantine_rows(workspace, GPQA, "test", loaded)
        check_malformed_share(GPQA, "test", loaded, source.max_malformed_share, listed)
    quarantined = listed.read_text(encoding="utf-8") if listed.exists() else ""
    assert places(caught.value, quarantine=quarantined) == set()
    assert name in str(caught.value), "the file is named"
    assert caught.value.remedy, "and what to do"


@pytest.mark.parametrize("way", [way for way, (name, _) in BROKEN.items() if name in ("g.csv", "g.jsonl", "g.parquet")])
def test_an_error_in_a_hub_file_quotes_no_row(
    dataset: Callable[..., Path], workspace: Workspace, places: Places, way: str
) -> None:
    name, content = BROKEN[way]
    entry = at(GPQA, dataset({("gpqa_diamond", "train"): content}, suffix=Path(name).suffix))
    source = BenchmarkSource(source="hub", revision="a" * 40, max_malformed_share=0.0)
    with pytest.raises(DataError) as caught:
        sound_problems(entry, "test", source, workspace, 0)
    assert places(caught.value) == set()


@pytest.mark.parametrize(
    ("benchmark", "content", "said"),
    [
        (GPQA.name, BROKEN["no header"][1], "no row has a column 'id'.*first line.*Record ID, Question, Subdomain"),
        ("mmlu", b"number,text\n1,2\n", "no row has a column 'id'; found number, text"),
    ],
    ids=["confidential: the missing columns", "another benchmark: the found columns"],
)
def test_the_error_of_a_file_without_a_header_names_columns(
    workspace: Workspace, benchmark: str, content: bytes, said: str
) -> None:
    (workspace.root / "g.csv").write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_files(workspace, benchmark, "test", "g.csv")


def test_a_sound_file_loads_and_its_ids_are_identifiers(workspace: Workspace) -> None:
    (workspace.root / "g.csv").write_bytes(export([*RECORDS, record(3, **{"Record ID": "recPhysicsOne"})]))
    (workspace.root / "o.jsonl").write_bytes(lines([ours(1), ours(2, id="physics/17.b")]))
    problems = read_files(workspace, GPQA.name, "test", "g.csv", "o.jsonl")
    assert [problem.id for problem in problems] == ["rec0", "rec1", "rec2", "recPhysicsOne", "q1", "physics/17.b"]


def test_a_malformed_row_is_found_by_its_line_and_its_identifier(workspace: Workspace) -> None:
    (workspace.root / "g.jsonl").write_bytes(lines([ours(7, answer="Z"), ours(8, id=WORD)]))
    source = BenchmarkSource(source="file", test_file="g.jsonl")
    file = quarantine_rows(workspace, GPQA, "test", GPQA.load("test", source, workspace, 0))
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = [(entry["line"], entry["column"], entry["id"]) for entry in entries]
    assert found == [(1, "answer", "q7"), (2, "id", None)]


@pytest.mark.parametrize("kind", ["another name", "twice the id", "no JSON"])
def test_an_error_in_a_local_file_quotes_no_row(workspace: Workspace, kind: str) -> None:
    file = workspace.data / "raw" / "gpqa_diamond-test.jsonl"
    choices = {"grader": "choice", "choices": (WORD, "x"), "answer": "A"}
    made = make("q1", f"{WORD}?", benchmark=GPQA.name, domain="mmlu", split="test", **choices)
    write_problems(file, [made, made])
    text = file.read_text(encoding="utf-8")
    if kind == "another name":
        text = json.dumps({**made.as_row(), WORD: 1}) + "\n"
    if kind == "no JSON":
        text = text.replace(":", "", 1)
    file.write_text(text.replace('"q1"', f'"{WORD}"'), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_problems(file)
    assert WORD not in str(caught.value)
