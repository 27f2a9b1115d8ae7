"""The guards read the stages' files: a release in the name or a missing file hides no row."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops import grading
from ops.config import Evaluation, Grading, Recipe, load_recipe
from ops.core.problem import Grade, Problem
from ops.core.workspace import Workspace
from ops.grading import configure, isolation
from ops.grading.graders import code
from ops.quality import stages
from ops.stages.problems import materialize_raw
from tests.command import podium
from tests.setups import without_workers

ROOT = Path(__file__).resolve().parents[3]
SQUARE = [{"kind": "call", "input": "f(2)", "output": "4"}]
RIGHT, WRONG = "def f(x):\n    return x * x", "def f(x):\n    return x + 1"


def program(name: str, answer: str) -> dict[str, Any]:
    return {"id": name, "question": f"Square it, {name}.", "answer": answer, "grader": "code", "tests": SQUARE}


@pytest.fixture
def recipe(workspace: Workspace, write_rows: Callable[..., Path]) -> Recipe:
    """LiveCodeBench from files, one release per split, beside one embedded benchmark."""
    shutil.copytree(ROOT / "config", workspace.config)
    write_rows("v1.jsonl", [program(f"old{i}", RIGHT) for i in range(3)])
    write_rows("v6.jsonl", [program(f"new{i}", RIGHT) for i in range(2)])
    values = yaml.safe_load((workspace.config / "recipes" / "files.yaml").read_text(encoding="utf-8"))
    values["benchmarks"] = {
        "math500": {"train": 4, "test": 2},
        "mmlu": {"train": 4, "test": 2},
        "rlpr": {"train": 4, "test": 2},
        "livecodebench": {"source": "file", "train_file": "v1.jsonl", "test_file": "v6.jsonl"},
    }
    (workspace.config / "recipes" / "released.yaml").write_text(
        yaml.safe_dump({**values, "name": "released", "grading": {"isolation": "resource_limits"}}), encoding="utf-8"
    )
    return load_recipe(workspace.config, "released")


@pytest.fixture
def raw(workspace: Workspace, recipe: Recipe) -> dict[str, Path]:
    """Return file name → file of `data/raw` as the stage writes it."""
    for name in recipe.benchmarks:
        materialize_raw(without_workers(workspace, recipe), name)
    return {file.name: file for file in (workspace.data / "raw").iterdir()}


def edit(file: Path, **fields: Any) -> str:
    """Damage the first row and return its id."""
    first, *rest = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in [first | fields, *rest]), encoding="utf-8")
    return str(first["id"])


def test_rows_of_a_release_are_checked(workspace: Workspace, recipe: Recipe, raw: dict[str, Path]) -> None:
    sound = stages.raw_problems(without_workers(workspace, recipe))
    assert (sound.failures, sound.checked) == ([], 3 * 6 + 5)
    name = edit(raw["livecodebench-v1-train.jsonl"], tests=[])
    failures = stages.raw_problems(without_workers(workspace, recipe)).failures
    assert f"program without tests: livecodebench/{name}" in failures


def test_a_wrong_reference_program_of_a_release_is_named(
    workspace: Workspace, recipe: Recipe, raw: dict[str, Path]
) -> None:
    assert stages.evaluation_programs(without_workers(workspace, recipe)).checked == 2
    name = edit(raw["livecodebench-v6-test.jsonl"], answer=WRONG)
    failures = stages.evaluation_programs(without_workers(workspace, recipe)).failures
    assert [failure.partition(": ")[0] for failure in failures] == [f"livecodebench/{name}"]


def test_only_the_reference_programs_that_are_asked_are_run_and_once(
    workspace: Workspace, recipe: Recipe, raw: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []
    real = code.judge

    def counted(problem: Problem, program: str) -> Grade:
        run.append(problem.key)
        return real(problem, program)

    graders = {**grading.GRADERS, "code": replace(grading.GRADERS["code"], judge=counted)}
    monkeypatch.setattr(grading, "GRADERS", graders)
    configure(Grading(isolation=isolation()), workspace.root, workspace.cache)
    one = recipe.model_copy(update={"evaluation": Evaluation.model_validate({"questions": 1})})

    def programs_run(chosen: Recipe) -> tuple[bool, int, int]:
        run.clear()
        grading._MEMO.clear()  # as in another process
        report = stages.evaluation_programs(without_workers(workspace, chosen))
        return report.success, report.checked, len(run)

    assert programs_run(one) == (True, 1, 1), "the recipe asks one of the two questions"
    for _ in range(2):
        assert programs_run(recipe) == (True, 2, 0), "the same program passed the same tests"
    edit(raw["livecodebench-v6-test.jsonl"], answer=WRONG)
    for _ in range(2):
        assert programs_run(recipe) == (False, 2, 1), "a changed program is run, and a failing one every time"


def test_a_split_without_its_file_fails_and_names_the_file(
    workspace: Workspace, recipe: Recipe, raw: dict[str, Path]
) -> None:
    gone = ["livecodebench-v1-train.jsonl", "livecodebench-v6-test.jsonl", "mmlu-test.jsonl"]
    raw[gone[0]].unlink()
    assert stages.evaluation_programs(without_workers(workspace, recipe)).success, "that of another split is gone"
    for name in gone[1:]:
        raw[name].unlink()
    materialized = stages.raw_problems(without_workers(workspace, recipe), ["math500", "rlpr"])
    assert (materialized.success, materialized.checked) == (True, 12), "no file of other benchmarks is expected"
    assert not stages.evaluation_programs(without_workers(workspace, recipe)).success
    for check in (stages.raw_problems, stages.raw_gold):
        report = check(without_workers(workspace, recipe), ["math500", "mmlu", "livecodebench"])
        assert not report.success
        assert len(report.failures) == 3
        for name in gone:
            [failure] = [failure for failure in report.failures if name in failure]
            assert "does not exist" in failure and "raw_problems" in failure


def test_the_command_fails_for_a_damaged_and_for_a_missing_file(
    workspace: Workspace,
    recipe: Recipe,
    raw: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(workspace.root))
    assert podium("data", "check", recipe.name) == 0
    assert podium("data", "gold", recipe.name) == 0
    assert "livecodebench, test" in capsys.readouterr().out
    name = edit(raw["livecodebench-v6-test.jsonl"], tests=[])
    assert podium("data", "check", recipe.name) == 1
    assert f"program without tests: livecodebench/{name}" in capsys.readouterr().out
    raw["livecodebench-v6-test.jsonl"].unlink()
    for what in ("check", "gold"):
        assert podium("data", what, recipe.name) == 1
        output = capsys.readouterr()
        assert re.search(r"livecodebench-v6-test\.jsonl\b.* does not exist", output.out + output.err)
