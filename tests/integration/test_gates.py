"""What stops a run: a blocking check, which names a planted bad row, and requirements that a recipe lacks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.resources import RunResource
from ops.benchmarks.problem_files import write_problems
from ops.conductor.policy import PolicyCard
from ops.config import Setup
from ops.core.problem import CodeTest, Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow, response_file
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.cold_start.validation import ColdStartRecord, ValidationResult, sampling_settings
from pipelines.definitions import make_definitions
from tests.command import podium
from tests.integration.checkouts import UNTRAINED, configure, failure, load_raw, materialize, shortlisted, sizes

STRAY = ResponseRow("guesser", "mmlu", "nobody", 0, "ok", Response("", Usage(1, 1), 0.0, 0.0, ""), 2.0)
"""A row left by another run: one answer with a score that no grader gives."""
SQUARE = {"kind": "call", "input": "f(2)", "output": "4"}
pytestmark = pytest.mark.slow


class Gated:
    """A project without DVC whose recipe `gated` a test can change."""

    def __init__(self, project: Workspace, instance: dg.DagsterInstance) -> None:
        shutil.rmtree(project.root / ".dvc")
        self.project, self.instance = project, instance
        self.podium = RunResource(root=str(project.root), recipe="gated")
        self.write()

    def write(self, **sections: Any) -> None:
        """Write the recipe with these sections; `benchmarks` adds to its own."""
        benchmarks = sizes(8, 2) | sections.pop("benchmarks", {})
        curation = {"per_domain": 1, "selector": "uniform", "near_duplicate_jaccard": 1.0}
        recipe = UNTRAINED | {"name": "gated", "benchmarks": benchmarks, "curation": curation} | sections
        configure(self.project, {"recipes/gated": recipe})

    def file(self, name: str, rows: Iterable[dict[str, Any]]) -> str:
        """Write the rows of a benchmark's file."""
        (self.project.root / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    def materialize(self, *names: str, partition: str | None = None) -> dg.ExecuteInProcessResult:
        return materialize(self.podium, self.instance, *names, partition=partition, raise_on_error=False)

    def checked(self, name: str) -> dg.AssetCheckEvaluation:
        """Return the check of `raw_problems` on the present files."""
        check = dg.AssetCheckKey(dg.AssetKey("raw_problems"), name)
        job = make_definitions(self.podium).resolve_implicit_global_asset_job_def()
        alone = job.get_subset(asset_selection=set(), asset_check_selection={check})
        return evaluations(alone.execute_in_process(instance=self.instance, raise_on_error=False))[name]


@pytest.fixture
def gated(project: Workspace, instance: dg.DagsterInstance) -> Gated:
    return Gated(project, instance)


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def materialized(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key}


def program(name: str, answer: str) -> Problem:
    tests = (CodeTest("call", "f(2)", "4"),)
    return Problem(name, "livecodebench", "code", "train", f"Square: {name}", answer, "code", tests=tests)


def card_alone(setup: Setup) -> Path:
    """Make a base policy of its card, and return its folder."""
    folder = base_policy_folder(setup)
    folder.mkdir(parents=True)
    known = {"pool": setup.pool, "offered": setup.pool.names, "prompting": setup.recipe.prompting}
    PolicyCard(recipe=setup.recipe.name, max_completion_tokens=8, **known).write(folder)
    return folder


def test_a_failed_check_blocks_later_steps_of_the_run(gated: Gated) -> None:
    wrong = program("wrong", "def f(x):\n    return 2 * x + 1")
    others = [problem for problem in shortlisted(gated.podium.load_setup()) if problem.domain != "code"]
    write_problems(gated.project.data / "shortlist.jsonl", [*others, wrong])
    write_responses([STRAY], response_file(gated.project.data / "responses", "guesser", "mmlu"))
    result = gated.materialize("training_mix", "signal_forecast", "base_policy")
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
def test_a_shortlist_with_a_wrong_reference_program_is_refused_before_a_worker_is_asked(gated: Gated) -> None:
    wrong = {"id": "off", "question": "Square it.", "answer": "def f(x):\n    return x + 3", "tests": [SQUARE]}
    gated.write(benchmarks={"livecodebench": {"source": "file", "train_file": gated.file("lcb.jsonl", [wrong])}})
    load_raw(gated.podium.load_setup())
    result = gated.materialize("shortlist", "worker_pool")
    assert not result.success
    assert "livecodebench/off" in str(evaluations(result)["gold_answers_score_one"].description)
    # A run of its own, as the UI starts it for one asset: Dagster's blocking ends with the run.
    alone = gated.materialize("worker_responses", partition="math500")
    assert not alone.success
    assert "gold_answers_score_one" in failure(alone) and "livecodebench/off" in failure(alone)
    assert not gated.project.ledger.exists()
    gated.write()
    load_raw(gated.podium.load_setup())
    assert gated.materialize("shortlist").success
    assert gated.materialize("worker_responses", partition="math500").success


@pytest.mark.long
def test_responses_that_are_not_whole_are_refused(gated: Gated) -> None:
    shortlisted(gated.podium.load_setup())
    assert gated.materialize("worker_pool").success
    write_responses([STRAY], response_file(gated.project.data / "responses", "guesser", "mmlu"))
    result = gated.materialize("worker_responses", partition="math500")
    assert not result.success
    said = str(evaluations(result)["whole_and_in_range"].description)
    assert "score outside 0 to 1: guesser: mmlu/nobody #0" in said
    assert "problem that is not on the shortlist: guesser: mmlu/nobody #0" in said
    assert "neither answered nor said to be unreachable: guesser: mmlu/" in said


def test_grpo_does_not_start_from_a_policy_that_seldom_writes_a_workflow(gated: Gated) -> None:
    gated.write(cold_start={"validation": {"problems": 100, "least_valid": 0.95}})
    setup = gated.podium.load_setup()
    mix = [program(f"p{number}", f"def f(x):\n    return x * {number}") for number in range(101)]
    write_problems(gated.project.data / "training_mix.jsonl", mix)
    folder = card_alone(setup)
    seen = ValidationResult(
        problems=100, valid=91, failures={"unbalanced": 7, "cut_off": 2}, drawn=sampling_settings(setup.recipe)
    )
    ColdStartRecord(loss=(1.0,), validation=seen).write(folder)
    result = gated.materialize("base_policy", "conductor")
    assert not result.success
    assert materialized(result) == {"base_policy"}
    check = evaluations(result)["writes_workflows"]
    assert not check.passed
    assert "91 of 100 completions are workflows (91.0%); the others: unbalanced 7, cut_off 2" in str(check.description)
    assert check.metadata["valid_workflows"].value == 0.91
    assert "writes_workflows" in failure(gated.materialize("conductor"))
    gated.write(cold_start={"validation": {"problems": 100, "least_valid": 0.9}})
    assert evaluations(gated.materialize("base_policy"))["writes_workflows"].passed


@pytest.mark.long
def test_a_reference_program_of_an_evaluation_question_only_warns(gated: Gated) -> None:
    tests = {"kind": "unittest", "code": "import absent_library\nimport unittest\n"}
    row = {"id": "bcb", "question": "Complete it.", "answer": "x = 1\n", "tests": tests}
    gated.write(benchmarks={"bigcodebench": {"source": "file", "test_file": gated.file("bcb.jsonl", [row])}})
    result = gated.materialize("raw_problems", partition="bigcodebench")
    assert result.success
    warned = evaluations(result)["evaluation_programs_pass"]
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "No module named 'absent_library'" in str(warned.description)


@pytest.mark.long
def test_rows_of_a_release_are_gated_and_a_file_that_is_gone_fails(gated: Gated) -> None:
    rows = [{"id": f"p{i}", "question": f"Square it, {i}.", "answer": None, "tests": [SQUARE]} for i in range(3)]
    gated.write(benchmarks={"livecodebench": {"source": "file", "train_file": gated.file("lcb.jsonl", rows)}})
    sound = gated.materialize("raw_problems", partition="livecodebench")
    assert sound.success
    assert evaluations(sound)["well_formed"].metadata["checked"].value == 3
    file = gated.project.data / "raw" / "livecodebench-v1-train.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("Square it, 1.", " "), encoding="utf-8")
    assert "empty question: livecodebench/p1" in str(gated.checked("well_formed").description)
    file.unlink()
    assert f"data/raw/{file.name} does not exist" in str(gated.checked("well_formed").description)


@pytest.mark.long
def test_the_lifecycle_stops_at_a_bad_row_and_names_it(
    gated: Gated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    twins = {
        f"{split}_file": gated.file(f"{split}.jsonl", [{"id": "twin", "question": f"{split}?", "answer": "7"}])
        for split in ("train", "test")
    }
    gated.write(benchmarks={"math500": {"source": "file", **twins}})
    monkeypatch.setenv("PODIUM_ROOT", str(gated.project.root))
    monkeypatch.setenv("COLUMNS", "120")
    assert podium("run", "gated") == 1
    printed = capsys.readouterr()
    assert "id used twice in a benchmark: math500/twin" in printed.out.replace("\n", " ")
    assert any(line.startswith("error: ") for line in printed.err.splitlines())
    assert "Traceback" not in printed.out + printed.err
    assert not (gated.project.data / "shortlist.jsonl").exists()
    assert not gated.project.ledger.exists()


KEY = "PODIUM_TEST_KEY_THAT_IS_NOT_SET"
UNREADY: dict[str, Any] = {
    "name": "unready",
    "pool": "unready",
    "benchmarks": {"math500": {"train": 8, "test": 2}, "rlpr": {"source": "file", "train_file": "no.jsonl"}},
    "curation": {"per_domain": 1, "selector": "uniform", "near_duplicate_jaccard": 1.0},
    "policy": {"kind": "pretrained", "model": "Qwen/Qwen2.5-7B"},
    "grpo": {"vllm": True, "vllm_memory": 0.5},
    "budget": {"run_usd": 0.01},
}
POOL = {
    "name": "unready",
    "workers": [{"name": "w", "model": "openai/w", "api_key_env": KEY, "price": {"input": 1.0, "output": 1.0}}],
}
EVERYTHING = ("no.jsonl", KEY, "budget.run_usd", "vllm", "a GPU")
ALWAYS = (KEY, "budget.run_usd")
SPENDING = {
    "worker_responses": ("math500", EVERYTHING),
    "base_policy": (None, EVERYTHING[1:]),
    "conductor": (None, EVERYTHING[1:]),
    "baselines": ("math500", ALWAYS),
    "benchmark_scores": ("math500", ALWAYS),
}
"""Asset → partition, and the requirement that it names."""


def named(text: str) -> set[str]:
    """Return the names in the numbered list of a refusal or of a plan; the disk is this machine's."""
    return set(re.findall(r"^ ?\d+\. (.+?): ", text, re.MULTILINE))


@pytest.fixture
def unready(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A recipe that lacks a requirement of every kind, and no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PODIUM_ROOT", str(project.root))
    configure(project, {"recipes/unready": UNREADY, "pools/unready": POOL})
    return project


def test_a_pipeline_run_with_missing_requirements_is_refused_with_the_whole_list(
    unready: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert podium("run", "unready") == 1
    said = capsys.readouterr().err
    assert said.startswith("error: recipe 'unready' is not ready; missing:\n")
    assert named(said) >= set(EVERYTHING)
    assert "Traceback" not in said
    assert not unready.ledger.exists()
    assert not (unready.data / "raw").exists()


def test_the_plan_says_the_same_and_ends_with_1(unready: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert podium("plan", "unready") == 1
    here = named(capsys.readouterr().out)
    assert here >= set(EVERYTHING)
    assert podium("plan", "unready", "--gpus", "1x80") == 1
    differs = named(capsys.readouterr().out) ^ here
    assert differs - {"memory for evaluation"} == {"a GPU", "GPU memory"}  # which a large machine has
    assert [file.name for file in unready.root.glob(".podium")] == []


@pytest.mark.parametrize("asset", SPENDING)
def test_an_asset_that_spends_is_refused_alone(unready: Workspace, asset: str) -> None:
    chosen = RunResource(root=str(unready.root), recipe="unready")
    setup = chosen.load_setup()
    setup.workspace.data.mkdir(exist_ok=True)
    (setup.workspace.data / "training_mix.jsonl").touch()
    card_alone(setup)  # its key is part of a training run's folder name
    partition, lacking = SPENDING[asset]
    with dg.DagsterInstance.ephemeral() as instance:
        said = failure(materialize(chosen, instance, asset, partition=partition, raise_on_error=False))
    assert "NotReady" in said
    assert named(said) & set(EVERYTHING) == set(lacking)
    assert not unready.ledger.exists()
