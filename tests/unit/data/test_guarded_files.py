"""The guards read the stages' files: a release in the name or a missing file hides no row, and a few gold answers that
their graders reject are quarantined, counted and listed; more than a few block."""

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
from ops.benchmarks.problem_files import raw_file, read_problems, read_test_questions
from ops.benchmarks.quarantine import quarantine_file
from ops.config import Evaluation, Setup, load_recipe
from ops.core.digests import write_digest
from ops.core.errors import DataError
from ops.core.problem import Grade, Problem
from ops.core.workspace import Workspace
from ops.grading import configure, find_available_isolation
from ops.grading.graders import code
from ops.quality import stage_checks
from ops.quality.gold import GoldGrade, grade_gold
from ops.stages import raw_problems
from ops.stages.checks import check_once
from ops.stages.raw_problems import materialize_raw
from ops.versioning.settings import select_data_settings
from tests.command import podium
from tests.setups import without_workers
from tests.unit.data.inputs import lines, materialize_all, recipe_of, write_rows

CONFIG = Workspace.find().config
SQUARE = [{"kind": "call", "input": "f(2)", "output": "4"}]
RIGHT, WRONG = "def f(x):\n    return x * x", "def f(x):\n    return x + 1"


def program(name: str, answer: str) -> dict[str, Any]:
    return {"id": name, "question": f"Square it, {name}.", "answer": answer, "grader": "code", "tests": SQUARE}


@pytest.fixture
def setup(workspace: Workspace) -> Setup:
    """LiveCodeBench from files, one release per split, beside one embedded benchmark."""
    shutil.copytree(CONFIG, workspace.config)
    write_rows(workspace.root / "v1.jsonl", [program(f"old{i}", RIGHT) for i in range(3)])
    write_rows(workspace.root / "v6.jsonl", [program(f"new{i}", RIGHT) for i in range(2)])
    values = yaml.safe_load((workspace.config / "recipes" / "files.yaml").read_text(encoding="utf-8"))
    released = {"source": "file", "train_file": "v1.jsonl", "test_file": "v6.jsonl"}
    embedded = {name: {"train": 4, "test": 2} for name in ("math500", "mmlu", "rlpr")}
    values |= {"name": "released", "benchmarks": embedded | {"livecodebench": released}}
    text = yaml.safe_dump(values | {"grading": {"isolation": "resource_limits"}})
    (workspace.config / "recipes" / "released.yaml").write_text(text, encoding="utf-8")
    return without_workers(workspace, load_recipe(workspace.config, "released"))


@pytest.fixture
def raw(workspace: Workspace, setup: Setup) -> dict[str, Path]:
    """Return file name → file of `data/raw` as the stage writes it."""
    materialize_all(setup)
    return {file.name: file for file in (workspace.data / "raw").iterdir()}


def edit(file: Path, **fields: Any) -> str:
    """Damage the first row and return its id."""
    first, *rest = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    file.write_bytes(lines([first | fields, *rest]))
    return str(first["id"])


def test_rows_of_a_release_are_checked(setup: Setup, raw: dict[str, Path]) -> None:
    sound = stage_checks.check_raw_problems(setup)
    assert (sound.failures, sound.checked) == ([], 3 * 6 + 5)
    name = edit(raw["livecodebench-v1-train.jsonl"], tests=[])
    failures = stage_checks.check_raw_problems(setup).failures
    assert f"program without tests: livecodebench/{name}" in failures


@pytest.mark.parametrize("damaged", [b"", b"{", b"{}"])
def test_a_damaged_result_of_a_check_is_made_again(setup: Setup, raw: dict[str, Path], damaged: bytes) -> None:
    stored = setup.workspace.state / "checks" / "well_formed.json"
    first, _ = check_once(setup, "well_formed")
    assert check_once(setup, "well_formed") == (first, False) and first.success
    stored.write_bytes(damaged)
    again, ran = check_once(setup, "well_formed")
    assert (again.success, ran) == (True, True) and [*stored.parent.glob("well_formed.json.damaged-*")]


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(file.read_bytes()[:-50]), Path.unlink])
def test_damaged_questions_are_named_with_the_command_that_makes_them_again(
    setup: Setup, raw: dict[str, Path], damage: Callable[[Path], object]
) -> None:
    file = raw["livecodebench-v6-test.jsonl"]
    write_digest(file)  # as the stage does
    damage(file)
    with pytest.raises(DataError, match=r"-test\.jsonl: .*`podium run RECIPE`"):
        read_test_questions(setup.workspace, setup.recipe)



def test_only_the_reference_programs_that_are_asked_are_run_and_once(
    workspace: Workspace, setup: Setup, raw: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []
    real = code.grade_answer

    def counted(problem: Problem, program: str) -> Grade:
        run.append(problem.key)
        return real(problem, program)

    graders = {**grading.GRADERS, "code": replace(grading.GRADERS["code"], grade_answer=counted)}
    monkeypatch.setattr(grading, "GRADERS", graders)
    configure(workspace.root, find_available_isolation(), verdicts=workspace.cache)
    evaluation = Evaluation.model_validate({"questions": 1})
    one = replace(setup, recipe=setup.recipe.model_copy(update={"evaluation": evaluation}))

    def programs_run(chosen: Setup) -> tuple[list[str], int, int]:
        run.clear()
        grading._MEMO.clear()  # as in another process
        report = stage_checks.check_evaluation_programs(chosen)
        return [failure.partition(": ")[0] for failure in report.failures], report.checked, len(run)

    assert programs_run(one) == ([], 1, 1), "the recipe asks one of the two questions"
    for _ in range(2):
        assert programs_run(setup) == ([], 2, 0), "the same program passed the same tests"
    name = edit(raw["livecodebench-v6-test.jsonl"], answer=WRONG)
    for runs in (1, 0):
        failed = [f"livecodebench/{name}"]
        assert programs_run(setup) == (failed, 2, runs), "a changed program is run once, and its failure is kept"


def test_a_split_without_its_file_fails_and_names_the_file(setup: Setup, raw: dict[str, Path]) -> None:
    gone = ["livecodebench-v1-train.jsonl", "livecodebench-v6-test.jsonl", "mmlu-test.jsonl"]
    raw[gone[0]].unlink()
    assert stage_checks.check_evaluation_programs(setup).success, "that of another split is gone"
    for name in gone[1:]:
        raw[name].unlink()
    materialized = stage_checks.check_raw_problems(setup, ["math500", "rlpr"])
    assert (materialized.success, materialized.checked) == (True, 12), "no file of other benchmarks is expected"
    assert not stage_checks.check_evaluation_programs(setup).success
    for check in (stage_checks.check_raw_problems, stage_checks.check_raw_gold):
        report = check(setup, ["math500", "mmlu", "livecodebench"])
        assert not report.success
        assert len(report.failures) == 3
        for name in gone:
            [failure] = [failure for failure in report.failures if name in failure]
            assert "does not exist" in failure and "raw_problems" in failure


def test_the_command_fails_for_a_damaged_and_for_a_missing_file(
    setup: Setup, raw: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_ROOT", str(setup.workspace.root))
    assert podium("data", "check", setup.recipe.name) == 0
    assert podium("data", "gold", setup.recipe.name) == 0
    assert "livecodebench, test" in capsys.readouterr().out
    name = edit(raw["livecodebench-v6-test.jsonl"], tests=[])
    assert podium("data", "check", setup.recipe.name) == 1
    assert f"program without tests: livecodebench/{name}" in capsys.readouterr().out
    raw["livecodebench-v6-test.jsonl"].unlink()
    for what in ("check", "gold"):
        assert podium("data", what, setup.recipe.name) == 1
        output = capsys.readouterr()
        assert re.search(r"livecodebench-v6-test\.jsonl\b.* does not exist", output.out + output.err)


# ── failing gold answers ─────────────────────────────────────────────────────

MISSED = "Answer: two"
"""A readable answer that the grader does not find in "Answer: Answer: two"."""


def without_others(workspace: Workspace, benchmark: str, split: str, rows: list[Any], **source: Any) -> Setup:
    """A recipe of this benchmark alone, whose split has these rows."""
    source |= {"source": "file", f"{split}_file": write_rows(workspace.root / "rows.jsonl", rows)}
    return without_workers(workspace, recipe_of({benchmark: source}))


def gold(workspace: Workspace, failing: int, *more: dict[str, Any], **source: Any) -> Setup:
    """`rlpr` with 200 rows, the first `failing` of which have a failing gold answer, and `more`."""
    answers = [MISSED] * failing + ["two"] * (200 - failing)
    rows = [{"id": f"q{i}", "question": f"Question {i}?", "answer": answer} for i, answer in enumerate(answers)]
    return without_others(workspace, "rlpr", "train", [*rows, *more], **source)


def test_a_few_failing_rows_are_quarantined_and_the_gate_passes(workspace: Workspace) -> None:
    setup = gold(workspace, 2)
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.failing_gold, raw.quarantined) == (198, 2, 0)
    assert [problem.id for problem in raw.train] == [f"q{i}" for i in range(2, 200)]
    assert read_problems(raw_file(workspace, setup.recipe, "rlpr", "train")) == raw.train
    [file] = raw.quarantine
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = [(entry["kind"], entry["row"]["id"], entry["column"]) for entry in entries]
    assert found == [("failing gold", "q0", "answer"), ("failing gold", "q1", "answer")]
    assert all("rejected by the grader text" in entry["reason"] and entry["remedy"] for entry in entries)
    report = stage_checks.check_raw_gold(setup)
    assert (report.success, report.checked, report.set_aside) == (True, 198, 2)
    assert report.summary == "198 rows checked; 2 set aside before, their gold answers failed"


def test_more_than_the_share_block_as_before_and_none_is_left_out(workspace: Workspace) -> None:
    setup = gold(workspace, 3)
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.failing_gold, raw.quarantine) == (200, 0, ())
    report = stage_checks.check_raw_gold(setup)
    assert (report.success, report.set_aside, len(report.failures)) == (False, 0, 3)
    assert report.failures[0].startswith("rlpr/q0: gold answer ")


@pytest.mark.parametrize(("share", "failing", "left"), [(0.0, 1, 200), (0.015, 3, 197)])
def test_the_share_is_the_recipes(workspace: Workspace, share: float, failing: int, left: int) -> None:
    setup = gold(workspace, failing, max_failing_gold_share=share)
    assert len(materialize_raw(setup, "rlpr").train) == left


def test_a_load_without_any_leaves_no_list_behind(workspace: Workspace) -> None:
    for failing in (1, 0):
        setup = gold(workspace, failing)
        materialize_raw(setup, "rlpr")
        assert quarantine_file(workspace, "rlpr", "train").exists() == bool(failing)
    assert stage_checks.check_raw_gold(setup).summary == "200 rows checked"


def test_malformed_rows_are_counted_apart(workspace: Workspace) -> None:
    setup = gold(workspace, 1, {"id": "empty", "question": "Question?", "answer": ""})
    raw = materialize_raw(setup, "rlpr")
    assert (len(raw.train), raw.quarantined, raw.failing_gold) == (199, 1, 1)
    assert len(raw.quarantine[0].read_text(encoding="utf-8").splitlines()) == 2
    assert stage_checks.check_raw_gold(setup).set_aside == 1


def test_recorded_data_settings_contain_the_share_only_if_it_was_changed(workspace: Workspace) -> None:
    setups = (gold(workspace, 0, **source) for source in ({}, {"max_failing_gold_share": 0.02}))
    unsaid, said = (select_data_settings(setup.recipe, setup.pool)["benchmarks"]["rlpr"] for setup in setups)
    assert "max_failing_gold_share" not in unsaid
    assert said == unsaid | {"max_failing_gold_share": 0.02}


def test_a_confidential_row_is_listed_by_its_id_alone(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_fails(given: Any) -> list[GoldGrade]:
        first, *others = grade_gold(given)
        return [first._replace(score=0.0), *others]

    monkeypatch.setattr(raw_problems, "grade_gold", first_fails)
    shape = {"choices": ["zephyr", "y"], "answer": "A"}
    listed = [{"id": f"rec{i}", "question": f"zephyr {i}?", **shape} for i in range(200)]
    raw = materialize_raw(without_others(workspace, "gpqa_diamond", "test", listed), "gpqa_diamond")
    assert raw.failing_gold == 1
    text = raw.quarantine[0].read_text(encoding="utf-8")
    assert json.loads(text)["id"] == "rec0" and "zephyr" not in text
