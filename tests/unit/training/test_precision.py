"""A policy keeps the precision of its recipe: when it is made, in GRPO, and when it is loaded for use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ops.conductor.policy import Conductor, PolicyCard
from ops.config import ColdStart, Recipe, Setup
from ops.core.workspace import Workspace
from ops.training.cold_start import examples
from ops.training.cold_start.base_policy import make_base_policy
from ops.training.grpo.trainer import run
from ops.training.run.plan import RunPlan
from tests.unit.training.tiny import tiny_plan

pytestmark = pytest.mark.slow


def types(policy: Conductor) -> set[torch.dtype]:
    return {parameter.dtype for parameter in policy._model.parameters()}


def made(plan: RunPlan, cold_start: ColdStart | None = None) -> Path:
    """Make the base policy of the plan's recipe from its pretrained model."""
    workspace = Workspace(plan.root)
    workspace.data.mkdir(exist_ok=True)
    (workspace.data / "training_mix.jsonl").write_bytes(plan.problems.read_bytes())
    recipe = Recipe.model_validate(plan.recipe.model_dump() | {"cold_start": cold_start})
    return make_base_policy(Setup(workspace, recipe, plan.pool), client=None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    return tiny_plan(tmp_path_factory.mktemp("bfloat16"), dtype="bfloat16")[0]


@pytest.fixture(scope="module")
def trained(plan: RunPlan) -> Path:
    folder = plan.root / "run"
    run(plan.model_copy(update={"base_policy": made(plan)}), folder, lambda *_: None)
    return folder


def test_trained_in_bfloat16_it_is_used_in_bfloat16(trained: Path) -> None:
    assert PolicyCard.read(trained / "policy").dtype == "bfloat16"
    assert {tensor.dtype for tensor in load_file(trained / "policy" / "model.safetensors").values()} == {torch.bfloat16}
    policy = Conductor.load(trained / "policy")
    assert types(policy) == {torch.bfloat16}
    assert len(policy.write([[{"role": "user", "content": "What is 1 + 1?"}]])) == 1


def test_steps_too_small_for_bfloat16_are_not_lost_on_the_way(plan: RunPlan, trained: Path) -> None:
    before = load_file(plan.base_policy / "model.safetensors")
    after = load_file(trained / "checkpoints" / "checkpoint-2" / "model.safetensors")
    moved = {name: (after[name].float() != before[name].float()).float().mean() for name in before}
    assert all(share > 0.5 for name, share in moved.items() if "proj.weight" in name)


def test_the_card_rules_over_the_type_of_the_file(trained: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.mkdir()
    for file in (trained / "policy").iterdir():
        (policy / file.name).write_bytes(file.read_bytes())
    PolicyCard.read(policy).model_copy(update={"dtype": "float32"}).write(policy)
    assert types(Conductor.load(policy)) == {torch.float32}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cold_start_keeps_it(plan: RunPlan, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    example = {
        "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
        "completion": [{"role": "assistant", "content": "model_id = [0]"}],
    }

    async def sampled(*_: Any, **__: Any) -> list[Any]:
        return [example] * 4

    monkeypatch.setattr(examples, "sample_examples", sampled)
    policy = plan.recipe.policy.model_copy(update={"dtype": dtype})
    recipe = plan.recipe.model_copy(update={"policy": policy})
    folder = made(plan.model_copy(update={"recipe": recipe}), ColdStart(steps=2, batch=2))
    assert types(Conductor.load(folder)) == {getattr(torch, dtype)}


