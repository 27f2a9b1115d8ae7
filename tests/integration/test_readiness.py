"""No call is made before a recipe is ready: `podium run`, and each asset that spends."""

from __future__ import annotations

import re
from typing import Any

import dagster as dg
import pytest
import yaml

from assets.resources import Podium
from ops.conductor.policy import PolicyCard
from ops.config import load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from pipelines.definitions import definitions
from tests.command import podium

pytestmark = pytest.mark.slow
KEY = "PODIUM_TEST_KEY_THAT_IS_NOT_SET"
RECIPE: dict[str, Any] = {
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
    (project.config / "recipes" / "unready.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    (project.config / "pools" / "unready.yaml").write_text(yaml.safe_dump(POOL), encoding="utf-8")
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
    chosen = Podium(root=str(unready.root), recipe="unready")
    _have_a_base_policy(chosen)
    partition, lacking = SPENDING[asset]
    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions(chosen).resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=[dg.AssetKey(asset)], partition_key=partition, raise_on_error=False
        )  # fmt: skip
    failed = next(event for event in result.all_node_events if event.is_step_failure)
    said = str(failed.step_failure_data.error_display_string)
    assert "NotReady" in said
    assert named(said) & set(EVERYTHING) == set(lacking)
    assert not unready.ledger.exists()


def _have_a_base_policy(podium: Podium) -> None:
    """Make the base policy whose key is part of a training run's folder name."""
    setup = podium.load()
    setup.workspace.data.mkdir(exist_ok=True)
    (setup.workspace.data / "training_mix.jsonl").write_text("", encoding="utf-8")
    folder = base_policy_folder(setup)
    folder.mkdir(parents=True)
    recipe, pool = load_recipe(setup.workspace.config, "unready"), load_pool(setup.workspace.config, "unready")
    PolicyCard(
        recipe="unready", pool=pool, offered=pool.names, prompting=recipe.prompting, max_completion_tokens=8
    ).write(folder)
