"""The recipes for GPUs: their stated differences from the paper are complete, and the files that they name exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ops.config import Recipe, Setup, Snapshot, load_recipe
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.plan import run_key

CONFIG = Workspace.find().config
ON_GPUS = (
    "paper", "paper-code", "paper-3b", "paper-server", "paper-async", "open", "files",
    "paper-3b-1x80", "paper-2x80", "paper-8x80", "paper-8x141", "paper-adaptive", "paper-recursive", "paper-baselines",
)  # fmt: skip


def differences(one: Any, other: Any, path: str = "") -> dict[str, Any]:
    """Return path → value in `other` for every difference."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return {} if one == other else {path: other}
    found: dict[str, Any] = {}
    for name in one.keys() | other.keys():
        found |= differences(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    return found


def from_paper(name: str, base: str = "paper") -> dict[str, Any]:
    paper, other = (load_recipe(CONFIG, recipe).model_dump() for recipe in (base, name))
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


def test_the_recipes_for_gpus_of_a_size_keep_the_papers_training_and_offload_nothing() -> None:
    engine = {
        "micro_batch", "processes", "deepspeed", "vllm_memory", "vllm_sleep", "vllm_tensor_parallel",
    }  # fmt: skip
    for name in ("paper-3b-1x80", "paper-2x80", "paper-8x80", "paper-8x141"):
        changed = {path for path in from_paper(name) if path.split(".")[0] not in ("evaluation", "budget", "pool")}
        assert changed - {"policy.model"} <= {f"grpo.{field}" for field in engine}, name
        deepspeed = Snapshot.take(CONFIG, name, None, "commit").deepspeed
        assert deepspeed is not None and "offload_optimizer" not in deepspeed["zero_optimization"]


def test_a_further_stage_of_the_papers_finds_the_policy_that_it_goes_on_from(tmp_path: Path) -> None:
    own = {"paper-adaptive": "adaptive", "paper-recursive": "recursive", "paper-baselines": "evaluation"}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "training_mix.jsonl").write_text("{}\n", encoding="utf-8")

    def keys(name: str) -> tuple[str, str]:
        snapshot = Snapshot.take(CONFIG, name, None, "commit")
        setup = Setup(Workspace(tmp_path), snapshot.recipe, snapshot.pool)
        base = base_policy_folder(setup)
        return base.name, run_key(setup, base, snapshot.deepspeed)

    for name, section in own.items():
        changed = {path.split(".")[0] for path in from_paper(name, "paper-2x80")}
        assert changed - {"budget"} == {"trained_as", section}
        assert keys(name) == keys("paper-2x80")
    assert keys("paper-8x80")[1] != keys("paper-2x80")[1]


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


def test_many_questions_finds_the_quickstarts_policies_and_asks_four_times_the_questions() -> None:
    many, quickstart = (load_recipe(CONFIG, name) for name in ("many-questions", "quickstart"))
    assert many.policy_name == "quickstart"
    changed = differences(many.model_dump(), quickstart.model_dump())
    tests = {f"benchmarks.{name}.test" for name in quickstart.benchmarks}
    assert set(changed) == {"name", "description", "trained_as", "budget.run_usd", *tests}
    assert all(source.test == 4 * quickstart.benchmarks[name].test for name, source in many.benchmarks.items())
