"""The file source: every kind of file gives the same problems, also in the hub's own columns, cut or in parts."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.benchmarks.hub import HubChanged
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.rows import Row
from ops.benchmarks.store import evaluation_questions, raw_file, training_candidates
from ops.config import BenchmarkSource
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.stages.problems import materialize_raw
from tests.loading import sound_problems
from tests.setups import without_workers
from tests.unit.data.upstream import HUB_ROWS, make_recipe

KINDS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")
Rows = Sequence[Mapping[str, Any]]

CHOICE = [
    {
        "id": f"c{i}",
        "question": f'Which, "{i}"?\nOn two lines, with a comma.',
        "choices": ["x", "y, z", '"w"'],
        "answer": "B",
        "grader": "mcq",
        "subject": "letters",
        "level": i,
    }
    for i in range(3)
]
PROGRAM = [
    {
        "id": f"p{i}",
        "question": "Add.",
        "answer": "",
        "tests": {"kind": "stdin", "public": [{"input": "1 2\n", "output": "3\n"}]},
        "release": "v1",
    }
    for i in range(3)
]


def write(file: Path, rows: Rows) -> str:
    """Write rows in the format of the file's suffix; lists and objects are JSON text in CSV. Return the file's name."""
    if file.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
        return file.name
    text = io.StringIO(newline="")
    if ".csv" in file.name:
        table = csv.writer(text)
        table.writerow(rows[0])
        for row in rows:
            table.writerow([v if isinstance(v, str | int) else json.dumps(v) for v in row.values()])
    else:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    data = text.getvalue().encode()
    file.write_bytes(gzip.compress(data) if file.name.endswith(".gz") else data)
    return file.name


def load(workspace: Workspace, benchmark: str, split: Split, *names: str, **fields: Any) -> list[Problem]:
    source = BenchmarkSource(source="file", **{f"{split}_file": names}, **fields)
    return sound_problems(BENCHMARKS[benchmark], split, source, workspace, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_problems(workspace: Workspace, tmp_path: Path, kind: str) -> None:
    problems = load(workspace, "mmlu", "test", write(tmp_path / f"rows{kind}", CHOICE))
    assert problems == [
        Problem(
            id=f"c{i}",
            benchmark="mmlu",
            domain="mmlu",
            split="test",
            question=f'Which, "{i}"?\nOn two lines, with a comma.',
            answer="B",
            grader="choice",
            choices=("x", "y, z", '"w"'),
            subject="letters",
            level=str(i),
        )
        for i in range(3)
    ]
    programs = load(workspace, "livecodebench", "train", write(tmp_path / f"code{kind}", PROGRAM))
    assert [[(test.kind, test.input, test.output) for test in p.tests] for p in programs] == [
        [("stdin", "1 2\n", "3\n")]
    ] * 3


def test_lines_are_those_of_the_file(workspace: Workspace, tmp_path: Path) -> None:
    bad = {**CHOICE[0], "id": "bad", "answer": "Z"}
    for kind, place in ((".jsonl", "line 4"), (".csv", "line 9"), (".parquet", "row 4")):
        name = write(tmp_path / f"rows{kind}", [*CHOICE, bad])
        with pytest.raises(DataError, match=rf"rows{kind}: 1 of 4 rows: .*{place}, column 'answer' is 'Z', none of"):
            load(workspace, "mmlu", "test", name)


def test_several_files_make_one_split(workspace: Workspace, tmp_path: Path) -> None:
    dev = write(tmp_path / "dev.jsonl", CHOICE)
    val = write(tmp_path / "val.parquet", [{**row, "id": f"v{row['id']}"} for row in CHOICE])
    assert [p.id for p in load(workspace, "mmlu", "train", dev, val)] == ["c0", "c1", "c2", "vc0", "vc1", "vc2"]
    again = write(tmp_path / "again.csv", CHOICE[:1])
    with pytest.raises(DataError, match=r"'c0' is already the id of line 1 of \S+dev\.jsonl"):
        load(workspace, "mmlu", "train", dev, again)


def test_unknown_kind_and_folder(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"type that is not supported \(\.xlsx\)\. Convert it to \.jsonl"):
        load(workspace, "mmlu", "test", "rows.xlsx")
    with pytest.raises(DataError, match="does not exist"):
        load(workspace, "mmlu", "test", ".")


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_exports_in_the_hubs_columns_are_read_as_from_the_hub(
    workspace: Workspace, tmp_path: Path, name: str, kind: str
) -> None:
    problems = load(workspace, name, "test", write(tmp_path / f"test{kind}", [HUB_ROWS[name]]))
    (problem,) = problems
    assert problem.source.startswith(BENCHMARKS[name].hub.id)
    (same,) = BENCHMARKS[name].problems([row_of(name)], "test")
    assert replace(problem, source=same.source, id=problem.id.removeprefix("v6/")) == same


def row_of(name: str) -> Row:
    return BENCHMARKS[name].from_hub(Row("hub", 1, HUB_ROWS[name], part="test", number=1))


def test_one_file_for_both_splits_is_cut_as_the_hub_is(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"id": f"m{i}", "question": f"What is {i}?", "answer": str(i)} for i in range(500)]
    write(tmp_path / "math.jsonl", rows)
    source = BenchmarkSource(source="file", train_file="math.jsonl", test_file="math.jsonl")
    train, test = (sound_problems(BENCHMARKS["math500"], split, source, workspace, 0) for split in ("train", "test"))
    assert (len(train), len(test), len({p.id for p in (*train, *test)})) == (300, 100, 400)
    assert [p.id for p in test[:5]] == ["m6", "m14", "m17", "m19", "m24"]
    write(tmp_path / "few.jsonl", rows[:50])
    few = BenchmarkSource(source="file", train_file="few.jsonl", test_file="few.jsonl")
    with pytest.raises(HubChanged, match="holds 50 rows"):
        sound_problems(BENCHMARKS["math500"], "train", few, workspace, 0)
    mmlu = BenchmarkSource(source="file", train_file="math.jsonl", test_file="math.jsonl")
    with pytest.raises(DataError, match=r"math\.jsonl is named for both splits\. Name one file for each split"):
        sound_problems(BENCHMARKS["mmlu"], "train", mmlu, workspace, 0)


# ── releases ─────────────────────────────────────────────────────────────────


def released(release: str, first: int) -> Rows:
    return [{**row, "id": f"p{first + i}", "release": release} for i, row in enumerate(PROGRAM)]


def test_a_release_is_part_of_the_splits_name_and_source(workspace: Workspace, tmp_path: Path) -> None:
    files = {"train_file": write(tmp_path / "a.jsonl", released("release_v1", 0))}
    source = BenchmarkSource(source="file", **files, test_file=write(tmp_path / "b.jsonl", released("v6", 3)))
    chosen = make_recipe(livecodebench=source)
    raw = materialize_raw(without_workers(workspace, chosen), "livecodebench")
    assert [file.name for file in raw.files] == ["livecodebench-v1-train.jsonl", "livecodebench-v6-test.jsonl"]
    assert raw.files[0] == raw_file(workspace, chosen, "livecodebench", "train")
    assert ({p.source for p in raw.train}, {p.source for p in raw.test}) == ({"v1"}, {"v6"})
    for name in ("math500", "mmlu", "rlpr"):
        materialize_raw(without_workers(workspace, chosen), name)
    assert [p for p in training_candidates(workspace, chosen) if p.benchmark == "livecodebench"] == raw.train
    assert evaluation_questions(workspace, chosen)["livecodebench"] == raw.test
    # A recipe that asks for another release never finds this one's questions.
    later = make_recipe(livecodebench=source.model_copy(update={"test_release": "v5"}))
    with pytest.raises(DataError, match=r"livecodebench-v5-test\.jsonl: does not exist"):
        evaluation_questions(workspace, later)


def test_the_training_release_cannot_be_held_out(workspace: Workspace, tmp_path: Path) -> None:
    train, test = (write(tmp_path / name, released("v1", first)) for name, first in (("a.jsonl", 0), ("b.jsonl", 3)))
    source = BenchmarkSource(source="file", train_file=train, test_file=test)
    with pytest.raises(DataError, match="column 'release' is 'v1', but the test split is of 'v6'"):
        materialize_raw(without_workers(workspace, make_recipe(livecodebench=source)), "livecodebench")
    same = source.model_copy(update={"test_release": "v1"})
    with pytest.raises(ConfigError, match=r"benchmarks\.livecodebench\.test_release: is 'v1', the training release"):
        materialize_raw(without_workers(workspace, make_recipe(livecodebench=same)), "livecodebench")


def test_a_cumulative_release_that_holds_the_training_questions_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    unstated = [{k: v for k, v in row.items() if k != "release"} for row in released("", 0)]
    source = BenchmarkSource(
        source="file",
        train_file=write(tmp_path / "v1.jsonl", unstated),
        test_file=write(tmp_path / "release_v6.jsonl", [*unstated[1:], {**unstated[0], "id": "p9"}]),
    )
    with pytest.raises(DataError, match=r"share 2 questions, p1, p2 among them\. .*cumulative releases"):
        materialize_raw(without_workers(workspace, make_recipe(livecodebench=source)), "livecodebench")


def test_exports_of_two_releases_say_theirs_in_every_id(workspace: Workspace, tmp_path: Path) -> None:
    exported = [{**HUB_ROWS["livecodebench"], "question_id": f"abc{i}_a"} for i in range(4)]
    source = BenchmarkSource(
        source="file",
        train_file=write(tmp_path / "test.jsonl", exported[:2]),
        test_file=write(tmp_path / "test6.jsonl", exported[2:]),
    )
    raw = materialize_raw(without_workers(workspace, make_recipe(livecodebench=source)), "livecodebench")
    assert [problem.id for problem in (*raw.train, *raw.test)] == ["v1/abc0_a", "v1/abc1_a", "v6/abc2_a", "v6/abc3_a"]
    assert {problem.source for problem in raw.test} == {"lighteval/code_generation_lite v6"}
    again = source.model_copy(update={"test_file": write(tmp_path / "release_v6.jsonl", exported)})
    with pytest.raises(DataError, match="share 2 questions, abc0_a, abc1_a among them"):
        materialize_raw(without_workers(workspace, make_recipe(livecodebench=again)), "livecodebench")


def test_a_hub_recipe_names_the_release_as_configuration() -> None:
    entry = BENCHMARKS["livecodebench"]
    assert {split: part.config for split, part in entry.hub.parts.items()} == dict(entry.releases)
