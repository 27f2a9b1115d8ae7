"""The stages of training in Dagster, `adaptive_conductor` and `recursive_conductor`, and the studies that use them:
each is a separate run if the recipe has the section, and otherwise nothing.

The trainers are forked: `test_lifecycle.py` and `test_trainer_endings.py` start the real command.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest

from assets.adaptive_conductor import NO_ADAPTIVE_STAGE, get_adaptive_run_folder
from assets.conductor import get_run_folder
from assets.recursive_conductor import NO_RECURSIVE_STAGE, get_final_run_folder, list_training_runs
from assets.resources import RunResource
from assets.studies import RECIPE_STUDIES, load_study, load_study_inputs
from ops.conductor.policy import PolicyCard, policy_key
from ops.config import RoundLimits, Setup
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.evaluation.stored_studies import Study, StudyStore, read_all_questions, sample_questions
from ops.results.table import iterate_records
from ops.stages.studies.subsets import draw_subsets
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.guards import check_run_guards
from ops.training.run.training_run import CURVE_FILE, LOG_FILE, RunPlan, RunResult, read_curve
from tests.integration.checkouts import configure, load_raw, materialize
from tests.trainer_processes import ForkedTrainer
from tests.unit.training.tiny import GRPO, tiny_plan

pytestmark = [
    pytest.mark.long,  # `make test` trains these stages without Dagster (tests/unit/training)
    pytest.mark.timeout(600),
]
NAMES = ("math500", "aime25")
STAGES = ("conductor", "adaptive_conductor", "recursive_conductor")
LIMITS = {"rounds": 2, "calls_ratio": 3.0}
ADAPTIVE: dict[str, Any] = {"adaptive": {"steps": 1, "largest": 3}}
RECURSIVE: dict[str, Any] = {"recursive": {"steps": 1, "limits": LIMITS}}


def podium(workspace: Workspace, name: str, **sections: object) -> RunResource:
    """The resource of a recipe of that name: two steps on a few questions, and these sections."""
    sources: dict[str, Any] = dict.fromkeys(("mmlu", "rlpr", "livecodebench", "gpqa_diamond", "bigcodebench"))
    sources |= {benchmark: {"source": "embedded", "test": 4} for benchmark in NAMES}
    recipe = {"base": "quickstart", "name": "small", "grpo": GRPO, "benchmarks": sources, **sections}
    configure(workspace, {f"recipes/{name}": recipe})
    return RunResource(root=str(workspace.root), recipe=name)


def materialized(podium: RunResource, *names: str) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return materialize(podium, instance, *names)


class Trained(NamedTuple):
    """A project with a trained recipe that has all stages."""

    workspace: Workspace
    podium: RunResource
    done: dg.ExecuteInProcessResult
    """The run of its stages."""


@pytest.fixture(scope="module")
def all_stages(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("stages")
    workspace = make(folder / "project")
    warmer = {"warmer": {"grpo": {"temperature": 0.9}}}
    known = {
        "rounds": {"kind": "rounds", "recipe": "all", "deepest": 1, "questions": 3},
        "subsets": {"kind": "subsets", "recipe": "parts", "per_size": 1, "questions": 2, "retrained": 1},
        "changes": {"kind": "changes", "recipe": "plain", "changes": warmer, "temperatures": [0.0, 1.0]},
    }
    configure(workspace, {"studies": {"studies": {name: {"title": name, **study} for name, study in known.items()}}})
    chosen = podium(workspace, "all", **ADAPTIVE, **RECURSIVE)
    setup = chosen.load_setup()
    load_raw(setup)
    (folder / "tiny").mkdir()
    plan, _ = tiny_plan(folder / "tiny")
    shutil.copyfile(plan.problems, workspace.data / "training_mix.jsonl")
    shutil.copytree(plan.base_policy, base_policy_folder(setup))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dagster._core.pipes.subprocess.Popen", ForkedTrainer)
        yield Trained(workspace, chosen, materialized(chosen, *STAGES))


def test_the_adaptive_stage_goes_on_from_the_conductor(all_stages: Trained) -> None:
    chosen = podium(all_stages.workspace, "without-rounds", **ADAPTIVE)
    before, after = get_run_folder(chosen), get_adaptive_run_folder(chosen)
    assert before != after == get_final_run_folder(chosen)
    plan, result = RunPlan.read(after), RunResult.read(after)
    assert plan.base_policy == before / "policy" and plan.adaptive is not None and plan.adaptive.largest == 3
    assert result is not None and result.steps == 1
    assert PolicyCard.read(after / "policy").trained_steps == GRPO["steps"] + 1
    assert policy_key(after / "policy") == after.name  # the key of its scores and its version
    [event] = all_stages.done.asset_materializations_for_node("adaptive_conductor")
    assert event.metadata["steps"].value == 1 and "worker_use" in event.metadata
    curve = after / CURVE_FILE
    written = curve.stat().st_mtime_ns
    assert [json.loads(line)["step"] for line in curve.read_text(encoding="utf-8").splitlines()] == [1]
    assert materialized(chosen, "adaptive_conductor").success
    assert curve.stat().st_mtime_ns == written  # a finished run is not trained again


def test_the_recursive_stage_goes_on_from_the_last_policy_and_its_own_works_in_rounds(all_stages: Trained) -> None:
    chosen, done = all_stages.podium, all_stages.done
    before, after = get_adaptive_run_folder(chosen), get_final_run_folder(chosen)
    assert list(list_training_runs(chosen).values()) == [get_run_folder(chosen), before, after]
    plan, result = RunPlan.read(after), RunResult.read(after)
    assert plan.base_policy == before / "policy" and plan.recursive is not None and plan.adaptive is None
    assert result is not None and result.steps == 1
    card = PolicyCard.read(after / "policy")
    assert (card.rounds, card.trained_steps) == (RoundLimits.model_validate(LIMITS), GRPO["steps"] + 2)
    [event] = done.asset_materializations_for_node("recursive_conductor")
    assert event.metadata["steps"].value == 1
    [row] = read_curve(after)
    [loops] = [
        finding for finding in check_run_guards(chosen.load_setup(), after) if finding.guard == "recursion_loops"
    ]
    assert loops.finding.startswith(f"of the recursive rounds {row['round_2/loops']:.1%} repeat")
    evaluations = done.get_asset_check_evaluations()
    checks = {check.check_name: check for check in evaluations if check.asset_key.path == ["recursive_conductor"]}
    adaptive = [check.description for check in evaluations if check.asset_key.path == ["adaptive_conductor"]]
    findings = [str(finding) for finding in check_run_guards(chosen.load_setup(), before)]
    assert adaptive and set(adaptive) <= set(findings)
    assert checks["recursion_loops"].description == str(loops)


def table_of(podium: RunResource, study: str) -> tuple[list[dict[str, Any]], dg.AssetMaterialization]:
    """Return the table of a study's asset, and its event."""
    with dg.DagsterInstance.ephemeral() as instance:
        done = materialize(podium, instance, RECIPE_STUDIES, partition=study)
    [event] = done.asset_materializations_for_node(RECIPE_STUDIES)
    return [dict(record.data) for record in event.metadata["table"].records], event  # type: ignore[attr-defined]


def test_rounds_are_measured_once(all_stages: Trained) -> None:
    chosen, scores = all_stages.podium, all_stages.workspace.scores
    asked = sample_questions(read_all_questions(chosen.load_setup()), 3, 1)
    assert [problem.benchmark for problem in asked] == ["math500"] * 3 + ["aime25"] * 3
    table, event = table_of(chosen, "rounds")
    assert event.metadata["calls_live"].value > 0 and "picture" in event.metadata
    none, once = table[2:]
    assert none["system"] == "after the stage, no further round" and float(none["kept, %"]) == 0.0
    assert none["in-domain minus no further round, points"] == none["OOD minus no further round, points"] == ""
    calls = [float(row["calls a question"]) for row in (none, once)]
    assert calls[0] <= calls[1] <= 3 * calls[0]
    stored = sorted((file, file.stat().st_mtime_ns) for file in scores.rglob("*.parquet"))
    again, event = table_of(chosen, "rounds")
    assert again == table
    assert event.metadata["calls_live"].value == event.metadata["calls_cached"].value == 0
    assert stored == sorted((file, file.stat().st_mtime_ns) for file in scores.rglob("*.parquet"))
    store = StudyStore(load_study(chosen, "rounds"), load_study_inputs(chosen))  # as a command would find it
    assert [row[0] for row in store.read_findings().summary.rows] == [row["system"] for row in table]
    deeper = Study("rounds", load_study(chosen, "rounds").entry.model_copy(update={"deepest": 2}))  # type: ignore[union-attr]
    with pytest.raises(DataError, match="podium study rounds"):
        StudyStore(deeper, load_study_inputs(chosen)).read_findings()


def test_without_a_section_a_stage_says_so_and_changes_nothing(all_stages: Trained) -> None:
    project = all_stages.workspace
    chosen = podium(project, "bare", grpo=GRPO | {"steps": 3})  # which was not trained
    assert get_final_run_folder(chosen) == get_adaptive_run_folder(chosen) == get_run_folder(chosen)
    files = sorted(project.runs.rglob("*"))
    done = materialized(chosen, "adaptive_conductor", "recursive_conductor")
    for stage, reason in (("adaptive_conductor", NO_ADAPTIVE_STAGE), ("recursive_conductor", NO_RECURSIVE_STAGE)):
        [event] = done.asset_materializations_for_node(stage)
        assert event.metadata["nothing_done"].value == reason
    assert sorted(project.runs.rglob("*")) == files


def test_parts_of_the_pool_are_measured_once_and_a_conductor_is_trained_for_one(all_stages: Trained) -> None:
    chosen, project = podium(all_stages.workspace, "parts", **ADAPTIVE), all_stages.workspace
    setup = chosen.load_setup()
    [part] = draw_subsets(len(setup.pool.names), 1, setup.recipe.seed)[4]
    base = base_policy_folder(setup)
    workers = tuple(worker for ordinal, worker in enumerate(setup.pool.workers) if ordinal in part)
    smaller = Setup(setup.workspace, setup.recipe, setup.pool.model_copy(update={"workers": workers}))
    shutil.copytree(base, alone := base_policy_folder(smaller))  # its cold start
    known = {"pool": smaller.pool, "offered": smaller.pool.names}
    PolicyCard.read(base).model_copy(update=known).write(alone)

    table, event = table_of(chosen, "subsets")
    sizes = [f"{size} of 9: before the stage" for size in range(1, 10)]
    assert [row["system"] for row in table][:18:2] == sizes and "the cheap half" in str(table[22]["system"])
    own_label = f"{', '.join(smaller.pool.names)} (before: a Conductor trained for them alone)"
    assert [row["system"] for row in table[-2:]] == [f"{own_label}: before the stage", f"{own_label}: after it"]
    [own] = [run for run in project.runs.iterdir() if RunPlan.read(run).pool.names == smaller.pool.names]
    assert RunResult.read(own) is not None
    assert event.metadata["calls_live"].value > 0
    curve = (own / CURVE_FILE).stat().st_mtime_ns
    again, event = table_of(chosen, "subsets")
    assert again == table
    assert event.metadata["calls_live"].value == event.metadata["calls_cached"].value == 0
    assert (own / CURVE_FILE).stat().st_mtime_ns == curve  # not trained again


def test_a_change_is_trained_and_scored_once_beside_the_recipe_as_it_is(all_stages: Trained) -> None:
    project, chosen = all_stages.workspace, podium(all_stages.workspace, "plain")
    runs = {*project.runs.iterdir()}
    table, event = table_of(chosen, "changes")
    policies = ("Conductor", "cold start", "Conductor, temperature 1", "cold start, temperature 1")
    assert [row["system"] for row in table] == [*policies, *(f"warmer: {policy}" for policy in policies)]
    rows = {str(row["system"]): row for row in table}
    assert rows["cold start"]["in-domain, %"] == rows["warmer: cold start"]["in-domain, %"]  # the same examples
    assert event.metadata["calls_live"].value > 0 and "picture" in event.metadata
    [run] = {*project.runs.iterdir()} - runs
    assert RunPlan.read(run).recipe.grpo.temperature == 0.9
    arms = {
        arm.name: list(iterate_records(arm.rows))
        for arm in StudyStore(load_study(chosen, "changes"), load_study_inputs(chosen)).read_arms()
    }
    assert {row.benchmark for row in arms["warmer: Conductor"]} == {*NAMES} and len(arms["cold start"]) == 8

    files = [run / CURVE_FILE, run / LOG_FILE, *project.scores.rglob("*.parquet")]
    written = {file: file.stat().st_mtime_ns for file in files}
    again, event = table_of(chosen, "changes")
    assert again == table
    assert event.metadata["calls_live"].value == event.metadata["calls_cached"].value == 0
    assert {*project.scores.rglob("*.parquet")} <= {*files}
    assert written == {file: file.stat().st_mtime_ns for file in files}
