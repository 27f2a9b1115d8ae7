"""Blocking checks in real Dagster runs: a planted bad row is named, and nothing downstream runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from assets.resources import Podium
from ops.benchmarks.store import write_problems
from ops.conductor.policy import PolicyCard
from ops.core.problem import CodeTest, Problem
from ops.core.response import Response
from ops.core.rows import ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.stages.curation import materialize_shortlist
from ops.stages.problems import materialize_raw
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.validation import ColdStartRecord, Validity, drawing
from pipelines.definitions import definitions
from pipelines.home import prepare
from tests.command import podium

TRAINED = ("math500", "mmlu", "rlpr", "livecodebench")
RECIPE: dict[str, Any] = {
    "name": "gated",
    "pool": "quickstart",
    "grading": {"isolation": "resource_limits"},  # programs of our own: see the quickstart
    "benchmarks": {name: {"train": 8, "test": 2} for name in TRAINED},
    "curation": {"per_domain": 1, "selector": "uniform", "near_duplicate_jaccard": 1.0},
    "policy": {"kind": "scratch", "max_tokens": 4096},
    "cold_start": {},
    "grpo": {"steps": 1, "questions_per_step": 1, "rollouts_per_question": 4, "micro_batch": 4},
}
STRAY = ResponseRow("guesser", "mmlu", "nobody", 0, "ok", Response("", 1, 1, 0.0, 0.0, ""), 2.0)
"""A row left by another run: one answer with a score that no grader gives."""
pytestmark = pytest.mark.slow
Planted = tuple[Workspace, dict[str, Any]]


@pytest.fixture
def gated(project: Workspace) -> Planted:
    """A project without DVC whose recipe `gated` a test can change before it is written."""
    shutil.rmtree(project.root / ".dvc")
    return project, json.loads(json.dumps(RECIPE))


@pytest.fixture
def instance(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    prepare(project)
    with dg.DagsterInstance.get() as dagster:
        yield dagster


def write_recipe(project: Workspace, recipe: dict[str, Any]) -> Podium:
    (project.config / "recipes" / "gated.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return Podium(root=str(project.root), recipe="gated")


def materialize(
    podium: Podium, instance: dg.DagsterInstance, *names: str, partition: str | None = None
) -> dg.ExecuteInProcessResult:
    """Run these assets with their checks, as the UI would."""
    job = definitions(podium).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(name) for name in names],
        partition_key=partition,
        raise_on_error=False,
    )


def checked(podium: Podium, instance: dg.DagsterInstance, name: str) -> dg.AssetCheckEvaluation:
    """Return the check of `raw_problems` on the present files."""
    check = dg.AssetCheckKey(dg.AssetKey("raw_problems"), name)
    job = definitions(podium).resolve_implicit_global_asset_job_def()
    alone = job.get_subset(asset_selection=set(), asset_check_selection={check})
    return evaluations(alone.execute_in_process(instance=instance, raise_on_error=False))[name]


def load_raw(podium: Podium) -> None:
    """Write `data/raw` like the asset, without a run."""
    setup = podium.load()
    for name in setup.recipe.benchmarks:
        materialize_raw(setup, name)


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return why the run's first failed step failed."""
    failed = next(event for event in result.all_node_events if event.is_step_failure)
    return str(failed.step_failure_data.error_display_string)


def materialized(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key}


def program(name: str, answer: str) -> Problem:
    tests = (CodeTest("call", "f(2)", "4"),)
    return Problem(name, "livecodebench", "code", "train", f"Square: {name}", answer, "code", tests=tests)


def test_a_failed_check_blocks_later_steps_of_the_run(
    gated: Planted, instance: dg.DagsterInstance
) -> None:
    project, recipe = gated
    podium = write_recipe(project, recipe)
    load_raw(podium)
    chosen = materialize_shortlist(podium.load()).problems
    wrong = program("wrong", "def f(x):\n    return 2 * x + 1")
    others = [problem for problem in chosen if problem.domain != "code"]
    write_problems(project.data / "shortlist.jsonl", [*others, wrong])
    write_responses([STRAY], response_file(project.data / "responses", "guesser", "mmlu"))
    result = materialize(podium, instance, "training_mix", "base_policy")
    assert not result.success
    assert materialized(result) == {"training_mix"}
    checks = evaluations(result)
    assert checks["fit_to_train_on"].passed
    gold = checks["gold_answers_score_one"]
    assert not gold.passed
    assert "livecodebench/wrong" in str(gold.description)
    assert "f(2) gave 5" in str(gold.description)
    page = Path(str(gold.metadata["data_docs"].value))
    assert "livecodebench/wrong" in page.read_text(encoding="utf-8")
    assert gold.metadata["sandbox"].value in ("bubblewrap", "resource_limits")


@pytest.mark.long
def test_a_shortlist_with_a_wrong_reference_program_is_refused_before_a_worker_is_asked(
    gated: Planted, instance: dg.DagsterInstance
) -> None:
    project, recipe = gated
    test = {"kind": "call", "input": "f(2)", "output": "4"}
    wrong = {"id": "off", "question": "Square it.", "answer": "def f(x):\n    return x + 3", "tests": [test]}
    (project.root / "lcb.jsonl").write_text(json.dumps(wrong) + "\n", encoding="utf-8")
    recipe["benchmarks"]["livecodebench"] = {"source": "file", "train_file": "lcb.jsonl"}
    podium = write_recipe(project, recipe)
    load_raw(podium)
    result = materialize(podium, instance, "shortlist", "worker_pool")
    assert not result.success
    assert "livecodebench/off" in str(evaluations(result)["gold_answers_score_one"].description)
    # A run of its own, as the UI starts it for one asset: Dagster's blocking ends with the run.
    alone = materialize(podium, instance, "worker_responses", partition="math500")
    assert not alone.success
    assert "gold_answers_score_one" in failure(alone)
    assert "livecodebench/off" in failure(alone)
    assert not project.ledger.exists()
    recipe["benchmarks"]["livecodebench"] = {"train": 8, "test": 2}
    load_raw(write_recipe(project, recipe))
    assert materialize(podium, instance, "shortlist").success
    assert materialize(podium, instance, "worker_responses", partition="math500").success


@pytest.mark.long
def test_responses_that_are_not_whole_are_refused(gated: Planted, instance: dg.DagsterInstance) -> None:
    project, recipe = gated
    podium = write_recipe(project, recipe)
    load_raw(podium)
    materialize_shortlist(podium.load())
    assert materialize(podium, instance, "worker_pool").success
    write_responses([STRAY], response_file(project.data / "responses", "guesser", "mmlu"))
    result = materialize(podium, instance, "worker_responses", partition="math500")
    assert not result.success
    said = str(evaluations(result)["whole_and_in_range"].description)
    assert "score outside 0 to 1: guesser: mmlu/nobody #0" in said
    assert "problem that is not on the shortlist: guesser: mmlu/nobody #0" in said
    assert "neither answered nor said to be unreachable: guesser: mmlu/" in said


def test_grpo_does_not_start_from_a_policy_that_seldom_writes_a_workflow(
    gated: Planted, instance: dg.DagsterInstance
) -> None:
    project, recipe = gated
    recipe["cold_start"] = {"validation": {"problems": 100, "least_valid": 0.95}}
    podium = write_recipe(project, recipe)
    setup = podium.load()
    mix = [program(f"p{number}", f"def f(x):\n    return x * {number}") for number in range(101)]
    write_problems(project.data / "training_mix.jsonl", mix)
    folder = base_policy_folder(setup)
    folder.mkdir(parents=True)
    PolicyCard(
        recipe="gated", pool=setup.pool, offered=setup.pool.names, prompting=setup.recipe.prompting,
        max_completion_tokens=8,
    ).write(folder)  # fmt: skip
    seen = Validity(problems=100, valid=91, failures={"unbalanced": 7, "cut_off": 2}, drawn=drawing(setup.recipe))
    ColdStartRecord(loss=(1.0,), validation=seen).write(folder)
    result = materialize(podium, instance, "base_policy", "conductor")
    assert not result.success
    assert materialized(result) == {"base_policy"}
    check = evaluations(result)["writes_workflows"]
    assert not check.passed
    assert "91 of 100 completions are workflows (91.0%); the others: unbalanced 7, cut_off 2" in str(check.description)
    assert check.metadata["valid_workflows"].value == 0.91
    alone = materialize(podium, instance, "conductor")
    assert "writes_workflows" in failure(alone)
    recipe["cold_start"]["validation"]["least_valid"] = 0.9
    lower = write_recipe(project, recipe)
    assert evaluations(materialize(lower, instance, "base_policy"))["writes_workflows"].passed


@pytest.mark.long
def test_a_reference_program_of_an_evaluation_question_only_warns(gated: Planted, instance: dg.DagsterInstance) -> None:
    project, recipe = gated
    tests = {"kind": "unittest", "code": "import absent_library\nimport unittest\n"}
    row = {"id": "bcb", "question": "Complete it.", "answer": "x = 1\n", "tests": tests}
    (project.root / "bcb.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    recipe["benchmarks"]["bigcodebench"] = {"source": "file", "test_file": "bcb.jsonl"}
    podium = write_recipe(project, recipe)
    result = materialize(podium, instance, "raw_problems", partition="bigcodebench")
    assert result.success
    warned = evaluations(result)["evaluation_programs_pass"]
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "No module named 'absent_library'" in str(warned.description)


@pytest.mark.long
def test_rows_of_a_release_are_gated_and_a_file_that_is_gone_fails(
    gated: Planted, instance: dg.DagsterInstance
) -> None:
    project, recipe = gated
    test = {"kind": "call", "input": "f(2)", "output": "4"}
    rows = [{"id": f"p{i}", "question": f"Square it, {i}.", "answer": None, "tests": [test]} for i in range(3)]
    (project.root / "lcb.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe["benchmarks"]["livecodebench"] = {"source": "file", "train_file": "lcb.jsonl"}
    podium = write_recipe(project, recipe)
    sound = materialize(podium, instance, "raw_problems", partition="livecodebench")
    assert sound.success
    assert evaluations(sound)["well_formed"].metadata["checked"].value == 3
    file = project.data / "raw" / "livecodebench-v1-train.jsonl"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace("Square it, 1.", " "), encoding="utf-8")
    assert "empty question: livecodebench/p1" in str(checked(podium, instance, "well_formed").description)
    file.unlink()
    assert "data/raw/livecodebench-v1-train.jsonl does not exist" in str(
        checked(podium, instance, "well_formed").description
    )


@pytest.mark.long
def test_the_lifecycle_stops_at_a_bad_row_and_names_it(
    gated: Planted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, recipe = gated
    for split in ("train", "test"):
        row = {"id": "twin", "question": f"How many, {split}?", "answer": "7"}
        (project.root / f"{split}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    recipe["benchmarks"]["math500"] = {"source": "file", "train_file": "train.jsonl", "test_file": "test.jsonl"}
    write_recipe(project, recipe)
    for name in ("DAGSTER_HOME", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PODIUM_ROOT", str(project.root))
    monkeypatch.setenv("COLUMNS", "120")
    assert podium("run", "gated") == 1
    printed = capsys.readouterr()
    assert "id used twice in a benchmark: math500/twin" in printed.out.replace("\n", " ")
    assert any(line.startswith("error: ") for line in printed.err.splitlines())
    assert "Traceback" not in printed.out + printed.err
    assert not (project.data / "shortlist.jsonl").exists()
    assert not project.ledger.exists()
