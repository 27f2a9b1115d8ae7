"""The file source: every kind of file gives the same problems, in our columns or the hub's, cut or in parts; an error
names file, line, column and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.benchmarks.files import read_rows
from ops.benchmarks.hub import HubChanged
from ops.benchmarks.problem_files import raw_file, read_evaluation_questions, read_training_candidates
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.source_rows import Row
from ops.config import BenchmarkSource
from ops.core.errors import ConfigError, DataError
from ops.core.workspace import Workspace
from ops.stages.raw_problems import RawProblems, materialize_raw
from tests.loading import sound_problems
from tests.setups import without_workers
from tests.unit.data.inputs import HUB_ROWS, lines, make, make_recipe, materialize_all, read_files, write_rows

Rows = Sequence[Mapping[str, Any]]
MATH = {"id": "m1", "domain": "math", "question": "What is $1+1$?", "answer": "2", "grader": "math"}
CHOICE = {"id": "c1", "question": "Which?", "choices": ["x", "y"], "answer": "B", "grader": "mcq"}
CODE = {"id": "p1", "question": "Add.", "answer": None, "grader": "code"}
CASE = {"input": "", "output": ""}
FUNCTIONAL = {"kind": "functional", "fn_name": "f", "public": [{"input": "[1", "output": "2"}]}
LETTERS = {"choices": ["x", "y, z", '"w"'], "answer": "B", "grader": "mcq", "subject": "letters"}
CHOICES = [LETTERS | {"id": f"c{i}", "question": f'Which, "{i}"?\nOn two lines.', "level": i} for i in range(3)]
PROGRAM = CODE | {"answer": "", "tests": {"kind": "stdin", "public": [{"input": "1 2\n", "output": "3\n"}]}}


@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"])
def test_every_kind_of_file_gives_the_same_problems(workspace: Workspace, kind: str) -> None:
    own = {"benchmark": "mmlu", "domain": "mmlu", "split": "test", "grader": "choice"}
    fields = LETTERS | own | {"choices": tuple(LETTERS["choices"])}
    assert read_files(workspace, "mmlu", "test", write_rows(workspace.root / f"rows{kind}", CHOICES)) == [
        make(row["id"], row["question"], level=str(row["level"]), **fields) for row in CHOICES
    ]
    [program] = read_files(workspace, "livecodebench", "train", write_rows(workspace.root / f"code{kind}", [PROGRAM]))
    assert [(test.kind, test.input, test.output) for test in program.tests] == [("stdin", "1 2\n", "3\n")]


@pytest.mark.parametrize(("kind", "place"), [(".jsonl", "line 4"), (".csv", "line 9"), (".parquet", "row 4")])
def test_lines_are_those_of_the_file(workspace: Workspace, kind: str, place: str) -> None:
    name = write_rows(workspace.root / f"rows{kind}", [*CHOICES, {**CHOICES[0], "id": "bad", "answer": "Z"}])
    with pytest.raises(DataError, match=rf"rows{kind}: 1 of 4 rows: .*{place}, column 'answer' is 'Z', none of"):
        read_files(workspace, "mmlu", "test", name)


def test_several_files_make_one_split(workspace: Workspace) -> None:
    dev = write_rows(workspace.root / "dev.jsonl", CHOICES)
    val = write_rows(workspace.root / "val.parquet", [{**row, "id": f"v{row['id']}"} for row in CHOICES])
    assert [p.id for p in read_files(workspace, "mmlu", "train", dev, val)] == ["c0", "c1", "c2", "vc0", "vc1", "vc2"]
    again = write_rows(workspace.root / "again.csv", CHOICES[:1])
    with pytest.raises(DataError, match=r"'c0' is already the id of line 1 of \S+dev\.jsonl"):
        read_files(workspace, "mmlu", "train", dev, again)


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_exports_in_the_hubs_columns_are_read_as_from_the_hub(workspace: Workspace, name: str, kind: str) -> None:
    entry, row = BENCHMARKS[name], HUB_ROWS[name]
    [problem] = read_files(workspace, name, "test", write_rows(workspace.root / f"test{kind}", [row]))
    assert (problem.benchmark, problem.domain, problem.grader) == (name, entry.domain, entry.grader)
    assert problem.source.startswith(entry.hub.id)
    assert "Q" in problem.question or name == "bigcodebench"
    [same] = entry.convert_rows([entry.from_hub(Row("hub", 1, row, source_name="test", number=1))], "test")
    assert same.source == entry.hub.id
    assert replace(problem, source=same.source, id=problem.id.removeprefix("v6/")) == same


def test_one_file_for_both_splits_is_cut_as_the_hub_is(workspace: Workspace) -> None:
    rows = [{"id": f"m{i}", "question": f"What is {i}?", "answer": str(i)} for i in range(500)]
    write_rows(workspace.root / "math.jsonl", rows)
    source = BenchmarkSource(source="file", train_file="math.jsonl", test_file="math.jsonl")
    train, test = (sound_problems(BENCHMARKS["math500"], split, source, workspace, 0) for split in ("train", "test"))
    assert (len(train), len(test), len({p.id for p in (*train, *test)})) == (300, 100, 400)
    assert [p.id for p in test[:5]] == ["m6", "m14", "m17", "m19", "m24"]
    with pytest.raises(DataError, match=r"math\.jsonl is named for both splits\. Name one file for each split"):
        sound_problems(BENCHMARKS["mmlu"], "train", source, workspace, 0)
    write_rows(workspace.root / "math.jsonl", rows[:50])
    with pytest.raises(HubChanged, match="holds 50 rows"):
        sound_problems(BENCHMARKS["math500"], "train", source, workspace, 0)


# ── rows ─────────────────────────────────────────────────────────────────────


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
    workspace: Workspace, benchmark: str, row: dict[str, Any], column: str, problem: str
) -> None:
    (workspace.root / "rows.jsonl").write_bytes(b"\n" + lines([row]))
    with pytest.raises(DataError) as caught:
        read_files(workspace, benchmark, "test", "rows.jsonl")
    missing = f"no row has a column {column!r}" if problem == "is missing" else f"line 2, column {column!r} "
    assert missing in caught.value.problem
    assert problem == "is missing" or problem in caught.value.problem
    assert caught.value.remedy


def test_line_separators_inside_text_do_not_split_a_row(workspace: Workspace) -> None:
    file = workspace.root / "rows.jsonl"
    file.write_bytes('{"question": "a\u2028b\\r"}\r\n{"question": "c"}'.encode())
    assert [row.text("question") for row in read_rows(file)] == ["a\u2028b\r", "c"]


def test_numbers_and_levels_are_read_as_text(workspace: Workspace) -> None:
    levels = {3: "3", "Level 3": "3", "Level ?": "", None: ""}
    rows = [{**MATH, "id": i, "answer": 7, "level": level} for i, level in enumerate(levels)]
    problems = read_files(workspace, "math500", "test", write_rows(workspace.root / "rows.jsonl", rows))
    assert [(p.id, p.answer, p.level) for p in problems] == [(str(i), "7", n) for i, n in enumerate(levels.values())]


@given(st.dictionaries(st.sampled_from([*MATH, "choices", "tests", "level"]), st.none() | st.text() | st.integers()))
def test_any_row_is_a_problem_or_a_data_error(values: dict[str, Any]) -> None:
    for benchmark in ("math500", "mmlu", "livecodebench", "bigcodebench"):
        try:
            problems = BENCHMARKS[benchmark].convert_rows(iter([Row("f", 1, values)]), "test")
        except DataError as error:
            assert error.where.startswith("line 1")
        else:
            assert problems[0].question.strip()
            assert problems[0].id


# ── releases ─────────────────────────────────────────────────────────────────


def released(release: str, first: int) -> Rows:
    return [{**PROGRAM, "id": f"p{first + i}", "release": release} for i in range(3)]


def programs(workspace: Workspace, train: Rows, test: Rows, name: str = "b.jsonl") -> BenchmarkSource:
    """LiveCodeBench from two files."""
    files = {"train_file": write_rows(workspace.root / "a.jsonl", train)}
    return BenchmarkSource(source="file", **files, test_file=write_rows(workspace.root / name, test))


def materialized(workspace: Workspace, source: BenchmarkSource) -> RawProblems:
    return materialize_raw(without_workers(workspace, make_recipe(livecodebench=source)), "livecodebench")


def test_a_release_is_part_of_the_splits_name_and_source(workspace: Workspace) -> None:
    source = programs(workspace, released("release_v1", 0), released("v6", 3))
    chosen = make_recipe(livecodebench=source)
    raw = materialize_all(without_workers(workspace, chosen))["livecodebench"]
    assert [file.name for file in raw.files] == ["livecodebench-v1-train.jsonl", "livecodebench-v6-test.jsonl"]
    assert raw.files[0] == raw_file(workspace, chosen, "livecodebench", "train")
    assert ({p.source for p in raw.train}, {p.source for p in raw.test}) == ({"v1"}, {"v6"})
    assert [p for p in read_training_candidates(workspace, chosen) if p.benchmark == "livecodebench"] == raw.train
    assert read_evaluation_questions(workspace, chosen)["livecodebench"] == raw.test
    # A recipe that asks for another release never finds this one's questions.
    later = make_recipe(livecodebench=source.model_copy(update={"test_release": "v5"}))
    with pytest.raises(DataError, match=r"livecodebench-v5-test\.jsonl: does not exist"):
        read_evaluation_questions(workspace, later)


def test_the_training_release_cannot_be_held_out(workspace: Workspace) -> None:
    source = programs(workspace, released("v1", 0), released("v1", 3))
    with pytest.raises(DataError, match="column 'release' is 'v1', but the test split is of 'v6'"):
        materialized(workspace, source)
    with pytest.raises(ConfigError, match=r"benchmarks\.livecodebench\.test_release: is 'v1', the training release"):
        materialized(workspace, source.model_copy(update={"test_release": "v1"}))


def test_a_cumulative_release_that_holds_the_training_questions_is_refused(workspace: Workspace) -> None:
    unstated = [{k: v for k, v in row.items() if k != "release"} for row in released("", 0)]
    cumulative = [*unstated[1:], {**unstated[0], "id": "p9"}]
    with pytest.raises(DataError, match=r"share 2 questions, p1, p2 among them\. .*cumulative releases"):
        materialized(workspace, programs(workspace, unstated, cumulative, "release_v6.jsonl"))


def test_exports_of_two_releases_say_theirs_in_every_id(workspace: Workspace) -> None:
    exported = [{**HUB_ROWS["livecodebench"], "question_id": f"abc{i}_a"} for i in range(4)]
    raw = materialized(workspace, programs(workspace, exported[:2], exported[2:], "test6.jsonl"))
    assert [problem.id for problem in (*raw.train, *raw.test)] == ["v1/abc0_a", "v1/abc1_a", "v6/abc2_a", "v6/abc3_a"]
    assert {problem.source for problem in raw.test} == {"lighteval/code_generation_lite v6"}
    with pytest.raises(DataError, match="share 2 questions, abc0_a, abc1_a among them"):
        materialized(workspace, programs(workspace, exported[:2], exported, "release_v6.jsonl"))
