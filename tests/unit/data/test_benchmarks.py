"""Loading: sources, caps and seeds; the seven benchmarks' own columns; what a worker is asked."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks.hub import Hub, Part
from ops.benchmarks.livecodebench import hidden_tests
from ops.benchmarks.prompts import worker_prompt
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.rows import Row
from ops.config import BENCHMARKS as NAMES
from ops.config import TRAINING_BENCHMARKS, BenchmarkSource
from ops.errors import DataError
from ops.problem import CodeTest, Problem
from ops.workspace import Workspace

SHORT = {"question": "Who?", "answer": "She", "grader": "text", "domain": "rlpr"}


def packed(tests: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


HUB_ROWS: dict[str, dict[str, Any]] = {
    "math500": {"problem": "Q", "answer": "2", "subject": "Algebra", "level": 2, "unique_id": "test/1.json"},
    "mmlu": {"question": "Q", "choices": ["a", "b", "c", "d"], "answer": 2, "subject": "anatomy"},
    "rlpr": {
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Q"}],
        "reward_model": {"ground_truth": "42 m", "style": "rule"},
        "ability": "physics",
    },
    "livecodebench": {
        "question_id": "1873_A", "question_content": "Q", "starter_code": "", "metadata": "{}",
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}]),
        "private_test_cases": packed([{"input": "3", "output": "4", "testtype": "stdin"}]),
    },
    "aime25": {"problem": "Q", "answer": 70, "id": "0"},
    "gpqa_diamond": {
        "Record ID": "rec1", "Question": "Q", "Subdomain": "Genetics", "Correct Answer": "right\n",
        "Incorrect Answer 1": "w1", "Incorrect Answer 2": "w2", "Incorrect Answer 3": "w3",
    },
    "bigcodebench": {
        "task_id": "BigCodeBench/13", "complete_prompt": "def task_func():\n    \"\"\"Doc.\"\"\"\n",
        "code_prompt": "def task_func():\n", "canonical_solution": "    return 1", "test": "class T: ...",
    },
}  # fmt: skip


def from_hub(name: str) -> Problem:
    entry = BENCHMARKS[name]
    rows = (entry.from_hub(Row("hub", line, HUB_ROWS[name])) for line in (7,))
    return entry.problems(rows, "test")[0]


def test_registry_knows_every_benchmark_that_recipes_may_name() -> None:
    assert set(BENCHMARKS) == set(NAMES)
    assert {name for name, entry in BENCHMARKS.items() if entry.trains} == set(TRAINING_BENCHMARKS)
    for entry in BENCHMARKS.values():
        assert entry.licence and entry.citation and entry.hub.id


@pytest.mark.parametrize("name", NAMES)
def test_hub_columns_become_a_checked_problem(name: str) -> None:
    problem = from_hub(name)
    entry = BENCHMARKS[name]
    assert (problem.benchmark, problem.domain, problem.grader) == (name, entry.domain, entry.grader)
    assert "Q" in problem.question or name == "bigcodebench"
    assert problem.source == entry.hub.id


def test_hub_columns_one_by_one() -> None:
    assert from_hub("mmlu").answer == "C"
    assert from_hub("aime25").answer == "70"
    assert (from_hub("math500").id, from_hub("math500").level) == ("test/1.json", "2")
    assert (from_hub("rlpr").answer, from_hub("rlpr").subject) == ("42 m", "physics")
    assert from_hub("livecodebench").tests == (CodeTest("stdin", "1", "2"), CodeTest("stdin", "3", "4"))
    gpqa = from_hub("gpqa_diamond")
    assert gpqa.choices["ABCD".index(gpqa.answer)] == "right"
    assert sorted(gpqa.choices) == ["right", "w1", "w2", "w3"]
    assert from_hub("bigcodebench").answer == "def task_func():\n    return 1"


def test_hub_row_of_another_shape_names_its_column() -> None:
    for name, column in (
        ("rlpr", "prompt"),
        ("livecodebench", "public_test_cases"),
        ("gpqa_diamond", "Record ID"),
    ):
        with pytest.raises(DataError, match=column):
            BENCHMARKS[name].from_hub(Row("hub", 1, {}))


def test_hidden_tests_refuse_a_pickle_that_would_run_something() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return print, ("ran",)

    for bad in (
        base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode(),
        "####",
        "AAAA",
        '{"a": 1}',
        "",
    ):
        with pytest.raises(ValueError):
            hidden_tests(bad)


def test_starter_code_with_a_class_makes_method_calls(workspace: Workspace, write_rows: Any) -> None:
    tests = {
        "kind": "functional",
        "fn_name": "f",
        "public": [{"input": '[1, 2]\n"a"\ntrue', "output": "null"}],
    }
    row = {
        "id": "1",
        "question": "Q",
        "answer": None,
        "starter_code": "class Solution:\n    def f(self):",
        "tests": tests,
    }
    file = write_rows("lcb.jsonl", [row, {**row, "id": "2", "starter_code": "def f():"}])
    source = BenchmarkSource(source="file", train_file=file.name)
    method, function = BENCHMARKS["livecodebench"].load("train", source, workspace, 0)
    assert method.tests == (CodeTest("call", "Solution().f([1, 2], 'a', True)", "None"),)
    assert function.tests == (CodeTest("call", "f([1, 2], 'a', True)", "None"),)
    assert method.question.endswith("```python\nclass Solution:\n    def f(self):\n```")


def test_caps_take_a_seeded_sample_in_file_order(workspace: Workspace, write_rows: Any) -> None:
    file = write_rows("rows.jsonl.gz", [{**SHORT, "id": str(i)} for i in range(300)])
    source = BenchmarkSource(source="file", train_file=file.name, test_file=file.name, train=50, test=50)

    def ids(split: Any, seed: int) -> list[int]:
        return [int(p.id) for p in BENCHMARKS["rlpr"].load(split, source, workspace, seed)]

    assert ids("train", 0) == ids("train", 0) == sorted(ids("train", 0))
    assert len(ids("train", 0)) == 50
    assert ids("train", 0) != ids("train", 1)
    assert ids("test", 0) == ids("test", 1)


def test_splits_that_do_not_exist_say_so(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="evaluation only"):
        BENCHMARKS["aime25"].load("train", BenchmarkSource(), workspace, 0)
    with pytest.raises(DataError, match="test_file"):
        BENCHMARKS["mmlu"].load("test", BenchmarkSource(source="file", train_file="x.jsonl"), workspace, 0)


def test_hub_parts_are_disjoint_and_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "upstream"
    folder.mkdir()
    (folder / "test.jsonl").write_text(
        "".join(json.dumps({"n": i}) + "\n" for i in range(500)), encoding="utf-8"
    )
    parts = BENCHMARKS["math500"].hub.parts
    hub = Hub(str(folder), parts)
    train = [row.values["n"] for row in hub.rows("train", None)]
    test = [row.values["n"] for row in hub.rows("test", None)]
    assert (len(train), len(test), len({*train, *test})) == (300, 100, 400)
    assert test == sorted(test) and test != list(range(100))
    assert [row.line for row in hub.rows("test", None)] == [n + 1 for n in test]


def test_hub_that_cannot_be_read_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot be loaded"):
        list(Hub(str(tmp_path / "empty"), {"test": Part(None, "test")}).rows("test", None))


def test_worker_prompt_ends_with_what_the_grader_looks_for(make: Callable[..., Problem]) -> None:
    assert worker_prompt(make("1", "What is 1?")) == "What is 1?\nGive the final answer in \\boxed{}."
    choice = make("2", "Which?", grader="choice", choices=("x", "y"), answer="B")
    assert worker_prompt(choice) == 'Which?\nA) x\nB) y\nFinish with "Answer: X", X being the letter.'
    assert worker_prompt(make("3", "Who?", grader="text")).endswith(
        '\nFinish with "Answer: " and a short answer.'
    )
    assert worker_prompt(make("4", "Do.", grader="code")).endswith("complete program in one ```python block.")
