"""LiveCodeBench's hidden tests: read in each of upstream's forms, never loaded as a pickle, counted apart."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.benchmarks.catalogue import livecodebench
from ops.benchmarks.catalogue.livecodebench import unpack_hidden_tests as unpacked
from ops.benchmarks.problem_files import questions_key, read_problems, read_training_candidates, write_problems
from ops.benchmarks.registry import BENCHMARKS, describe_graded_tests
from ops.config import BenchmarkSource, Setup, load_recipe
from ops.core.errors import DataError
from ops.core.installation import resources_folder
from ops.core.problem import CodeTest, Problem
from ops.core.workspace import Workspace
from ops.grading import configure, find_available_isolation, grade_many, hidden_tests
from ops.stages.curation import materialize_mix, materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from tests.builders import fenced
from tests.loading import sound_problems
from tests.setups import without_workers
from tests.unit.data.inputs import HUB_ROWS, packed, pickled, read_files, write_rows

TESTS = [{"input": "3\n", "output": "é\n", "testtype": "stdin"}] * 3
RAN: list[str] = []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_text_that_any_protocol_pickled_is_read(protocol: int, count: int) -> None:
    tests = TESTS[:1] * count
    assert unpacked(packed(pickle.dumps(json.dumps(tests, ensure_ascii=False), protocol))) == tests


def test_plain_json_is_read() -> None:
    assert unpacked(json.dumps(TESTS)) == TESTS


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return RAN.append, ("ran",)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (packed(pickle.dumps(Evil())), "refused"),
        (packed(pickle.dumps(Evil(), 0)), "refused"),
        (packed(pickle.dumps(["[]"])), "refused"),
        (packed(pickle.dumps(b"[]")), "refused"),
        (packed(pickle.dumps("{}")), "not a list"),
        (packed(pickle.dumps("[" * 100_000)), "nested"),
        (packed(b"\x8c\x02[]2."), "would do DUP"),
        (packed(b""), "exhausted"),
        (packed(b"no pickle"), "unknown"),
        (packed(pickle.dumps("[]"))[:-8], "cannot be unpacked"),
        ("####", "cannot be unpacked"),
        ('{"a": 1}', "cannot be unpacked"),
        ("", "cut short"),
    ],
)
def test_other_formats_are_refused_and_no_code_runs(bad: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpacked(bad)
    assert RAN == []


def test_archives_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livecodebench, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="over"):
        unpacked(pickled(["x" * 2000]))


@given(st.binary() | st.lists(st.sampled_from([b"\x80\x04", b"\x8c\x02[]", b"c", b"os\n", b"R", b"."])).map(b"".join))
def test_any_pickle_gives_tests_or_a_value_error(data: bytes) -> None:
    try:
        assert isinstance(unpacked(packed(data)), list)
    except ValueError:
        return


# ── rows ─────────────────────────────────────────────────────────────────────


def load(workspace: Workspace, *rows: dict[str, Any]) -> list[Problem]:
    numbered = [{**HUB_ROWS["livecodebench"], "question_id": str(n), **row} for n, row in enumerate(rows)]
    hidden_tests.configure(workspace.root)
    return read_files(workspace, "livecodebench", "train", write_rows(workspace.root / "lcb.jsonl", numbered))


def test_hidden_tests_of_a_megabyte_are_no_malformed_row(workspace: Workspace) -> None:
    numbers = " ".join(str(n * 7919 % 10_007) for n in range(200_000))
    large = [{"input": numbers, "output": numbers, "testtype": "stdin"}]
    [problem] = load(workspace, {"private_test_cases": pickled(large)})
    assert [(len(test.input), test.hidden) for test in problem.tests] == [(1, False)]
    assert problem.hidden and (problem.hidden.count, problem.hidden.characters) == (1, 2 * len(numbers))


def test_functional_rows_call_the_method_they_name(workspace: Workspace) -> None:
    case = {"input": "[1, 2]\n3", "output": "true", "testtype": "functional"}
    row = {
        "starter_code": "class Solution:\n    def has(self, xs, x):", "metadata": json.dumps({"func_name": "has"}),
        "public_test_cases": json.dumps([case]), "private_test_cases": pickled([case]),
    }  # fmt: skip
    [problem] = load(workspace, row)
    public = CodeTest("call", "Solution().has([1, 2], 3)", "True")
    assert problem.tests == (public,)
    assert [test for _, test in hidden_tests.read_hidden_tests(problem, "call")] == [replace(public, hidden=True)]


def test_a_row_says_whether_it_is_graded_on_hidden_tests(workspace: Workspace) -> None:
    full, bare, empty = load(workspace, {}, {"private_test_cases": None}, {"private_test_cases": "[]"})
    assert describe_graded_tests([bare, empty]) == "public tests only (2 in 2 problems)"
    assert describe_graded_tests([full]) == "hidden tests (1, and 1 public ones, in 1 problems)"
    both = "hidden tests (1, and 2 public ones, in 2 problems, 1 of which have public ones only)"
    assert describe_graded_tests([full, bare]) == both
    embedded = sound_problems(BENCHMARKS["livecodebench"], "train", BenchmarkSource(train=3), workspace, 0)
    assert describe_graded_tests(embedded) == describe_graded_tests([]) == "", (
        "a benchmark that hides nothing says nothing"
    )


@pytest.mark.parametrize(
    ("column", "cases", "said"),
    [
        ("private_test_cases", [1], r"private_test_cases.*list, not text"),
        *(("public_test_cases", cases, "not a list") for cases in ("5", "true", '"abc"', '{"input": "1"}')),
    ],
)
def test_tests_of_another_form_are_a_malformed_row(workspace: Workspace, column: str, cases: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(workspace, {column: cases})


def test_a_stored_problem_refers_to_its_hidden_tests(workspace: Workspace) -> None:
    problems, file = load(workspace, {}), workspace.root / "p.jsonl"
    write_problems(file, problems)
    assert read_problems(file) == problems
    row = json.loads(file.read_text(encoding="utf-8"))
    assert row["tests"] == [{"kind": "stdin", "input": "1", "output": "2"}]
    digest = hashlib.sha256(b'["stdin", "3", "4"]\n').hexdigest()
    assert row["hidden"] == {"count": 1, "characters": 2, "digest": digest, "names": []}
    without = {name: value for name, value in row.items() if name != "hidden"}
    public = Problem.from_row(without)
    assert public.as_row() == without
    assert questions_key([public]) != questions_key(problems)
    write_rows(file, [{**without, "tests": [*row["tests"], {**row["tests"][0], "hidden": True}]}])
    with pytest.raises(DataError, match=r"hidden tests in the row.*materialize it again"):
        read_problems(file)


# ── the stage ────────────────────────────────────────────────────────────────

SECRET = "90210"
CASES = [{"input": f"{SECRET}{n}\n", "output": f"{SECRET}{n}\n", "testtype": "stdin"} for n in range(2)]
FORMS = [json.dumps(CASES), pickled(CASES)]
"""The same hidden tests in both of upstream's forms."""


def setup_of(workspace: Workspace, *private: str | None) -> Setup:
    """A recipe with one training problem per text of hidden tests, and one test problem of our own format."""
    rows = [
        {**HUB_ROWS["livecodebench"], "question_id": str(n), "question_content": f"Q{n}", "private_test_cases": text}
        for n, text in enumerate(private)
    ]
    tests = [{"kind": "stdin", "input": SECRET, "output": "5", "hidden": True}]
    own = {"id": "own", "question": "Print 5.", "answer": "", "tests": tests}
    train, test = write_rows(workspace.root / "v1.jsonl", rows), write_rows(workspace.root / "v6.jsonl", [own])
    source = BenchmarkSource(source="file", train_file=train, test_file=test)
    recipe = load_recipe(resources_folder() / "config", "files")
    curation = recipe.curation.model_copy(update={"per_domain": 2, "shortlist_factor": 1.0})
    recipe = recipe.model_copy(update={"benchmarks": {"livecodebench": source}, "curation": curation})
    return without_workers(workspace, recipe)


def files(workspace: Workspace) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (workspace.data / "raw").rglob("*") if file.is_file()}


def test_no_hidden_test_is_in_a_row_of_either_form(workspace: Workspace) -> None:
    setup = setup_of(workspace, *FORMS, None)
    raw = materialize_raw(setup, "livecodebench")
    assert [problem.hidden and problem.hidden.count for problem in (*raw.train, *raw.test)] == [2, 2, None, 1]
    assert raw.train[0].hidden == raw.train[1].hidden, "both forms give the same tests"
    assert raw.graded_on == (
        "train: hidden tests (4, and 3 public ones, in 3 problems, 1 of which have public ones only); "
        "test: hidden tests (1, and 0 public ones, in 1 problems)"
    )
    assert read_training_candidates(workspace, setup.recipe) == raw.train
    materialize_shortlist(setup)
    mix = materialize_mix(setup).problems
    assert {problem.hidden for problem in mix} <= {problem.hidden for problem in raw.train}
    for file in (*raw.files, workspace.data / "shortlist.jsonl", workspace.data / "training_mix.jsonl"):
        assert SECRET not in file.read_text(encoding="utf-8")
    configure(workspace.root, find_available_isolation())
    hidden_tests.check_hidden_tests([*raw.train, *raw.test])
    for problem in raw.train[:2]:
        right, wrong = (f"n = input()\nprint({{'1': 2, {wrong!r}: 7}}.get(n, n))" for wrong in ("", f"{SECRET}1"))
        passed, failed = grade_many([(problem, fenced(right)), (problem, fenced(wrong))])
        assert passed.reason == "passed 3 tests"
        assert failed.failed and failed.failed.label == "test 3 of 3 (stdin, hidden)"


def test_files_that_no_row_names_are_removed_and_an_error_changes_nothing(workspace: Workspace) -> None:
    materialize_raw(setup_of(workspace, *FORMS), "livecodebench")
    before = files(workspace)
    assert len([name for name in before if name.endswith(".zip")]) == 2
    other = json.dumps(CASES[:1])
    with pytest.raises(DataError, match="malformed"):
        materialize_raw(setup_of(workspace, other, "broken"), "livecodebench")
    assert files(workspace) == before
    materialize_raw(setup_of(workspace, other), "livecodebench")
    after = files(workspace)
    assert len([name for name in after if name.endswith(".zip")]) == 2
    assert len(set(before) & set(after)) == 3, "both tables and the tests of the other split"
    setup = setup_of(workspace, None)
    materialize_raw(setup, "livecodebench")
    assert len([name for name in files(workspace) if name.endswith(".zip")]) == 1
    left = setup.recipe.model_copy(update={"benchmarks": {"math500": BenchmarkSource(train=2, test=2)}})
    materialize_raw(without_workers(workspace, left), "math500")
    assert sorted(files(workspace)) == ["math500-test.jsonl", "math500-train.jsonl"]
