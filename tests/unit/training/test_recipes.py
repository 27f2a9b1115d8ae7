"""The recipes for GPUs: their stated differences from the paper are complete, and the files that they name exist."""

from __future__ import annotations

from typing import Any

import pytest

from ops.config import Recipe, Snapshot, load_recipe
from ops.core.workspace import Workspace

CONFIG = Workspace.find().config
ON_GPUS = ("paper", "paper-code", "paper-3b", "paper-server", "paper-async", "open", "files")


def differences(one: Any, other: Any, path: str = "") -> dict[str, Any]:
    """Return path → value in `other` for every difference."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return {} if one == other else {path: other}
    found: dict[str, Any] = {}
    for name in one.keys() | other.keys():
        found |= differences(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    return found


def from_paper(name: str) -> dict[str, Any]:
    paper, other = (load_recipe(CONFIG, recipe).model_dump() for recipe in ("paper", name))
    return {path: value for path, value in differences(paper, other).items() if path not in ("name", "description")}


def test_the_authors_configuration_is_the_papers_but_for_what_they_released() -> None:
    assert from_paper("paper-code") == {
        "seed": 42,
        "curation.selector": "uniform",
        "curation.shortlist_factor": 1.0,
        "prompting.shuffle_ordinals": False,
        "policy.model": "Qwen/Qwen2.5-7B-Instruct",
        "grpo.loss": "bnpo",
        "grpo.vllm_memory": 0.5,
        "grpo.vllm_sleep": True,
        "grpo.vllm_correction": "none",
        "grpo.checkpoint_every": 20,
        "evaluation.repeats": 3,
        "evaluation.questions": 2000,
        "evaluation.benchmarks.bigcodebench": {"repeats": 5, "questions": None, "target_error": None, "pool": None},
        "budget.run_usd": 2500.0,
    }


def test_the_scale_study_and_the_server_change_the_machine_alone() -> None:
    small = {"policy.model": "Qwen/Qwen2.5-3B", "grpo.deepspeed": "zero3.json", "grpo.keep_checkpoints": 2}
    assert from_paper("paper-3b") == small
    server = {"grpo.vllm_mode": "server", "grpo.vllm_server_url": "http://127.0.0.1:8000"}
    assert from_paper("paper-server") == server
    assert from_paper("paper-async") == server | {"grpo.staleness": 1}


def test_the_unconstrained_evaluation_changes_only_its_own_workers() -> None:
    pools = from_paper("paper-unconstrained")
    assert pools.pop("evaluation.benchmarks.bigcodebench")["pool"] == "paper:unconstrained-bigcodebench"
    assert pools == {"trained_as": "paper", "evaluation.pool": "paper:unconstrained", "budget.run_usd": 70000.0}


def test_the_open_recipe_needs_no_key_of_a_provider_and_no_gated_benchmark() -> None:
    snapshot = Snapshot.take(CONFIG, "open", None, "commit")
    assert "gpqa_diamond" not in snapshot.recipe.benchmarks
    assert all(worker.api_key_env is None and worker.api_base for worker in snapshot.pool.workers)
    changed = {path.split(".")[0] for path in from_paper("open")}
    assert changed == {"pool", "benchmarks", "evaluation", "budget"}


@pytest.mark.parametrize("name", ON_GPUS)
def test_pool_deepspeed_file_and_room_for_a_prompt_are_there(name: str) -> None:
    snapshot = Snapshot.take(CONFIG, name, None, "commit")
    grpo = snapshot.recipe.grpo
    assert snapshot.deepspeed is not None and grpo.vllm
    assert grpo.vllm_max_model_length == 8192 + grpo.max_completion_tokens
    assert Recipe.model_validate_json(snapshot.recipe.model_dump_json()) == snapshot.recipe


def test_offload_moves_the_optimizer_and_nothing_else() -> None:
    plain = Snapshot.take(CONFIG, "paper-3b", None, "commit").deepspeed
    offloaded = Snapshot.take(CONFIG, "paper", None, "commit").deepspeed
    assert differences(plain, offloaded) == {
        "zero_optimization.offload_optimizer": {"device": "cpu", "pin_memory": True}
    }


def test_the_reproduction_finds_the_quickstarts_policies_and_asks_every_baseline() -> None:
    reproduction, quickstart = (load_recipe(CONFIG, name) for name in ("reproduction", "quickstart"))
    assert reproduction.policy_name == "quickstart"
    changed = differences(reproduction.model_dump(), quickstart.model_dump())
    assert set(changed) == {"name", "description", "trained_as", "evaluation.baselines", "budget.run_usd"}
