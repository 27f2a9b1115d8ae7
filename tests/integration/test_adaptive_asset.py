"""`adaptive_conductor` in Dagster: a run of its own where the recipe has the section, nothing where it has none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from assets.adaptive_conductor import NO_SECTION, adaptive_run
from assets.conductor import run_folder
from assets.resources import Podium
from ops.conductor.policy import PolicyCard, policy_key
from ops.config import Setup
from ops.core.workspace import Workspace
from ops.evaluation.subsets import parts
from ops.stages.problems import materialize_raw
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


def materialized(
    podium: Podium, *names: str, settings: Mapping[str, Mapping[str, Any]] | None = None
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions(podium).resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey.from_user_string(name) for name in names]
        config = {"ops": {name: {"config": dict(own)} for name, own in (settings or {}).items()}}
        return job.execute_in_process(instance=instance, asset_selection=chosen, run_config=config)


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


def test_parts_of_the_pool_are_measured_once_and_a_conductor_is_trained_for_one(
    project: Workspace, tmp_path: Path
) -> None:
    sources = dict.fromkeys(("mmlu", "rlpr", "livecodebench", "aime25", "gpqa_diamond", "bigcodebench"))
    sources |= {"math500": {"source": "embedded", "test": 2}}  # type: ignore[dict-item]
    chosen = podium(project, tmp_path, adaptive={"steps": 1, "largest": 3}, benchmarks=sources)
    setup = chosen.load()
    materialize_raw(setup, "math500")
    materialized(chosen, "conductor", "adaptive_conductor")
    [part] = parts(len(setup.pool.names), 1, setup.recipe.seed)[4]
    base = base_policy_folder(setup)
    workers = tuple(worker for ordinal, worker in enumerate(setup.pool.workers) if ordinal in part)
    smaller = Setup(setup.workspace, setup.recipe, setup.pool.model_copy(update={"workers": workers}))
    shutil.copytree(base, alone := base_policy_folder(smaller))  # its cold start
    known = {"pool": smaller.pool, "offered": smaller.pool.names}
    PolicyCard.read(base).model_copy(update=known).write(alone)

    settings = {"subsets": {"per_size": 1, "questions": 2, "unseen": "", "retrained": 1}}
    [event] = materialized(chosen, "subsets", settings=settings).asset_materializations_for_node("subsets")
    table = [dict(record.data) for record in event.metadata["table"].records]  # type: ignore[attr-defined]
    sizes = [f"{size} of 9" for size in range(1, 10)]
    assert [row["on offer"] for row in table][:9] == sizes and "the cheap half" in str(table[11]["on offer"])
    assert table[-1]["on offer"] == f"{', '.join(smaller.pool.names)} (before: a Conductor trained for them alone)"
    [own] = [run for run in project.runs.iterdir() if RunPlan.read(run).pool.names == smaller.pool.names]
    assert RunResult.read(own) is not None
    assert event.metadata["calls_live"].value > 0
    curve = (own / CURVE).stat().st_mtime_ns
    [again] = materialized(chosen, "subsets", settings=settings).asset_materializations_for_node("subsets")
    assert again.metadata["table"] == event.metadata["table"]
    assert again.metadata["calls_live"].value == again.metadata["calls_cached"].value == 0
    assert (own / CURVE).stat().st_mtime_ns == curve  # not trained again
