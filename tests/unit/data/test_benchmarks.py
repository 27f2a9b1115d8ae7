"""The seven benchmarks: columns, caps, seeds, embedded problems, the workers' prompt, and the table of benchmarks."""

from __future__ import annotations

from typing import Any

import pytest

from ops.benchmarks.registry import BENCHMARKS, ood_benchmarks, training_benchmarks, training_domains
from ops.benchmarks.source_rows import Row
from ops.config import BenchmarkSource
from ops.core.errors import DataError
from ops.core.problem import CodeTest, Problem
from ops.core.workspace import Workspace
from ops.grading import worker_prompt
from ops.quality import HeldOutQuestions, check_gold, check_problems
from tests.command import podium
from tests.loading import sound_problems
from tests.unit.data.inputs import HUB_ROWS, make, read_files, write_rows


def from_hub(name: str) -> Problem:
    row = BENCHMARKS[name].from_hub(Row("hub", 7, HUB_ROWS[name], source_name="test", number=7))
    return BENCHMARKS[name].convert_rows([row], "test")[0]


def test_the_registry_is_in_the_order_of_the_tables() -> None:
    assert training_benchmarks() == ("math500", "mmlu", "rlpr", "livecodebench")
    assert ood_benchmarks() == ("aime25", "gpqa_diamond", "bigcodebench")
    assert tuple(BENCHMARKS) == training_benchmarks() + ood_benchmarks()
    assert training_domains() == ("math", "mmlu", "rlpr", "code")
    assert training_domains(["aime25", "livecodebench", "math500"]) == ("math", "code")
    for entry in BENCHMARKS.values():
        assert entry.licence and entry.citation and entry.task and entry.cautions
        assert entry.hub.columns and entry.hub.documented_by and all(part.rows for part in entry.hub.splits.values())
    releases = {split: part.config for split, part in BENCHMARKS["livecodebench"].hub.splits.items()}
    assert releases == dict(BENCHMARKS["livecodebench"].releases), "a hub recipe names the release as configuration"


def test_hub_columns_one_by_one() -> None:
    assert (from_hub("mmlu").id, from_hub("mmlu").answer) == ("mmlu-test-7", "C")
    assert (from_hub("aime25").id, from_hub("aime25").answer) == ("aime25-0", "70")
    assert (from_hub("math500").id, from_hub("math500").level) == ("test/1.json", "2")
    assert (from_hub("rlpr").answer, from_hub("rlpr").subject) == ("42 m", "physics")
    assert from_hub("livecodebench").tests == (CodeTest("stdin", "1", "2"),)
    assert (hidden := from_hub("livecodebench").hidden) and (hidden.count, hidden.characters) == (1, 2)
    gpqa = from_hub("gpqa_diamond")
    assert gpqa.choices["ABCD".index(gpqa.answer)] == "right"
    assert sorted(gpqa.choices) == ["right", "w1", "w2", "w3"]
    assert from_hub("bigcodebench").answer == "def task_func():\n    return 1"


@pytest.mark.parametrize(
    ("name", "column"),
    [("rlpr", "prompt"), ("livecodebench", "public_test_cases"), ("gpqa_diamond", "Record ID")],
)
def test_hub_row_of_another_shape_names_its_column(name: str, column: str) -> None:
    with pytest.raises(DataError, match=column):
        BENCHMARKS[name].from_hub(Row("hub", 1, {}))


def test_starter_code_with_a_class_makes_method_calls(workspace: Workspace) -> None:
    case = {"input": '[1, 2]\n"a"\ntrue', "output": "null"}
    tests = {"kind": "functional", "fn_name": "f", "public": [case]}
    row = {"question": "Q", "answer": None, "tests": tests}
    codes = ("class Solution:\n    def f(self):", "def f():")
    rows = [{**row, "id": str(n), "starter_code": code} for n, code in enumerate(codes)]
    file = write_rows(workspace.root / "lcb.jsonl", rows)
    method, function = read_files(workspace, "livecodebench", "train", file)
    assert method.tests == (CodeTest("call", "Solution().f([1, 2], 'a', True)", "None"),)
    assert function.tests == (CodeTest("call", "f([1, 2], 'a', True)", "None"),)
    assert method.question.endswith("```python\nclass Solution:\n    def f(self):\n```")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_embedded_split_passes_the_checks(name: str, workspace: Workspace) -> None:
    entry, source = BENCHMARKS[name], BenchmarkSource(train=12, test=8)
    test = sound_problems(entry, "test", source, workspace, 5)
    assert len(test) == 8
    assert test == sound_problems(entry, "test", source, workspace, 6)
    train = sound_problems(entry, "train", source, workspace, 5) if entry.has_training_split else []
    if entry.has_training_split:
        assert len(train) == 12
        assert check_problems(train, held_out=HeldOutQuestions(test)).failures == []
    problems = [*test, *train]
    assert {(p.benchmark, p.domain, p.grader) for p in problems} == {(name, entry.domain, entry.grader)}
    gold = check_gold(problems)
    assert (gold.failures, gold.checked, gold.skipped) == ([], len(problems), 0)


def test_caps_take_a_seeded_sample_in_file_order(workspace: Workspace) -> None:
    rows = [{"id": str(i), "question": "Who?", "answer": "She"} for i in range(300)]
    train, test = (write_rows(workspace.root / name, rows) for name in ("train.jsonl.gz", "test.jsonl.gz"))
    source = BenchmarkSource(source="file", train_file=train, test_file=test, train=50, test=50)

    def ids(split: Any, seed: int) -> list[int]:
        return [int(p.id) for p in sound_problems(BENCHMARKS["rlpr"], split, source, workspace, seed)]

    assert ids("train", 0) == ids("train", 0) == sorted(ids("train", 0))
    assert len(ids("train", 0)) == 50
    assert ids("train", 0) != ids("train", 1)
    assert ids("test", 0) == ids("test", 1)


def test_splits_that_do_not_exist_say_so(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="evaluation only"):
        sound_problems(BENCHMARKS["aime25"], "train", BenchmarkSource(), workspace, 0)
    with pytest.raises(DataError, match="test_file"):
        sound_problems(BENCHMARKS["mmlu"], "test", BenchmarkSource(source="file", train_file="x.jsonl"), workspace, 0)


def test_worker_prompt_ends_with_what_the_grader_looks_for() -> None:
    assert worker_prompt(make("1", "What is 1?")) == "What is 1?\nGive the final answer in \\boxed{}."
    choice = make("2", "Which?", grader="choice", choices=("x", "y"), answer="B")
    assert worker_prompt(choice) == 'Which?\nA) x\nB) y\nFinish with "Answer: X", X being the letter.'
    assert worker_prompt(make("3", "Who?", grader="text")).endswith('\nFinish with "Answer: " and a short answer.')
    assert worker_prompt(make("4", "Do.", grader="code")).endswith("complete program in one ```python block.")


def test_list_prints_what_each_benchmark_declares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    assert podium("data", "benchmarks") == 0
    printed = capsys.readouterr().out
    for name, entry in BENCHMARKS.items():
        assert name in printed
        assert entry.hub.id in printed
        assert f"Grader: {entry.grader}" in printed
    assert "confidential" in printed
    assert "99,842" in printed
