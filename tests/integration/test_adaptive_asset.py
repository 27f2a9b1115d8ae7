"""`adaptive_conductor` in Dagster: a run of its own where the recipe has the section, nothing where it has none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.adaptive_conductor import NO_SECTION, adaptive_run
from assets.conductor import run_folder
from assets.resources import Podium
from ops.conductor.policy import PolicyCard, policy_key
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.plan import CURVE, RunPlan, RunResult
from pipelines.definitions import definitions
from tests.unit.training.tiny import GRPO, tiny_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def podium(project: Workspace, tmp_path: Path, **section: object) -> Podium:
    """Of a project that holds a mix and a base policy, and a recipe of two steps with this section."""
    recipe = {"base": "quickstart", "name": "small", "grpo": GRPO, **section}
    (project.config / "recipes" / "small.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    made = Podium(root=str(project.root), recipe="small")
    (tmp_path / "tiny").mkdir()
    plan, _ = tiny_plan(tmp_path / "tiny")
    project.data.mkdir(exist_ok=True)
    shutil.copyfile(plan.problems, project.data / "training_mix.jsonl")
    shutil.copytree(plan.base_policy, base_policy_folder(made.load()))
    return made


def materialized(podium: Podium, *names: str) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions(podium).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(name) for name in names])


def test_the_stage_goes_on_from_the_conductor_and_its_policy_is_the_last(project: Workspace, tmp_path: Path) -> None:
    chosen = podium(project, tmp_path, adaptive={"steps": 1, "largest": 3})
    done = materialized(chosen, "conductor", "adaptive_conductor")
    before, after = run_folder(chosen), adaptive_run(chosen)
    assert before != after
    plan, result = RunPlan.read(after), RunResult.read(after)
    assert plan.base_policy == before / "policy" and plan.adaptive is not None and plan.adaptive.largest == 3
    assert result is not None and result.steps == 1
    assert PolicyCard.read(after / "policy").trained_steps == GRPO["steps"] + 1
    assert policy_key(after / "policy") == after.name  # what its scores and its version are kept under
    [event] = done.asset_materializations_for_node("adaptive_conductor")
    assert event.metadata["steps"].value == 1 and "worker_use" in event.metadata
    curve = after / CURVE
    written = curve.stat().st_mtime_ns
    assert [json.loads(line)["step"] for line in curve.read_text(encoding="utf-8").splitlines()] == [1]
    assert materialized(chosen, "adaptive_conductor").success
    assert curve.stat().st_mtime_ns == written  # a finished run is not trained again


def test_without_the_section_the_stage_says_so_and_changes_nothing(project: Workspace, tmp_path: Path) -> None:
    chosen = podium(project, tmp_path)
    assert adaptive_run(chosen) == run_folder(chosen)
    files = sorted(project.runs.rglob("*"))
    done = materialized(chosen, "adaptive_conductor")
    [event] = done.asset_materializations_for_node("adaptive_conductor")
    assert event.metadata["nothing_done"].value == NO_SECTION
    assert sorted(project.runs.rglob("*")) == files
