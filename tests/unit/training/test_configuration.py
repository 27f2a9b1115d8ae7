"""The machine's settings in a recipe reach TRL's configuration; impossible ones are refused by name.

vLLM is not installed here: the tests read the settings that it would be started with.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from ops.config import Grpo, Recipe
from ops.core.workspace import Workspace
from ops.training.grpo.configuration import configuration, longest_sequence, patience
from tests.unit.training.plans import quick_plan

CONFIG = Workspace.find().config


def test_a_colocated_vllm_is_given_its_length_its_sleep_and_its_gpus(tmp_path: Path) -> None:
    engine = {"vllm": True, "vllm_memory": 0.45, "vllm_max_model_length": 10_240, "vllm_sleep": True}
    made = configuration(quick_plan(**engine), tmp_path)
    assert (made.use_vllm, made.vllm_mode, made.vllm_server_base_url) == (True, "colocate", None)
    assert (made.vllm_gpu_memory_utilization, made.vllm_max_model_length) == (0.45, 10_240)
    assert (made.vllm_enable_sleep_mode, made.vllm_tensor_parallel_size) == (True, 1)
    alone = quick_plan(**engine)
    # Settings of one of two ranks, without the launcher.
    spread = alone.recipe.grpo.model_copy(update={"vllm_tensor_parallel": 2, "processes": 2})
    of_two = alone.model_copy(update={"recipe": alone.recipe.model_copy(update={"grpo": spread})})
    assert configuration(of_two, tmp_path).vllm_tensor_parallel_size == 2


def test_a_server_is_asked_at_its_address(tmp_path: Path) -> None:
    made = configuration(
        quick_plan(vllm=True, vllm_mode="server", vllm_server_url="http://10.0.0.2:8000"),
        tmp_path,
    )
    assert (made.vllm_mode, made.vllm_server_base_url) == ("server", "http://10.0.0.2:8000")


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_the_correction_of_vllms_probabilities_is_the_recipes(tmp_path: Path, mode: str) -> None:
    made = configuration(quick_plan(vllm=True, vllm_correction=mode, vllm_correction_max=2.0), tmp_path)
    assert made.vllm_importance_sampling_correction is True
    assert (made.vllm_importance_sampling_mode, made.vllm_importance_sampling_clip_max) == (mode, 2.0)


def test_without_a_correction_there_is_none_and_unsaid_it_is_trls_own(tmp_path: Path) -> None:
    uncorrected = configuration(quick_plan(vllm=True, vllm_correction="none"), tmp_path)
    assert uncorrected.vllm_importance_sampling_correction is False
    ours, theirs = configuration(quick_plan(vllm=True), tmp_path), type(configuration(quick_plan(), tmp_path))
    for field in ("correction", "mode", "clip_max", "clip_min"):
        name = f"vllm_importance_sampling_{field}"
        assert getattr(ours, name) == theirs.__dataclass_fields__[name].default


def test_patience_and_the_number_of_checkpoints_are_the_recipes(tmp_path: Path) -> None:
    made = configuration(quick_plan(keep_checkpoints=1, collective_timeout_s=7200), tmp_path)
    assert (made.save_total_limit, made.ddp_timeout_delta) == (1, timedelta(hours=2))
    unsaid = configuration(quick_plan(), tmp_path)
    assert (unsaid.save_total_limit, unsaid.ddp_timeout_delta) == (2, timedelta(hours=4))


def test_a_prompt_has_the_room_that_vllm_keeps() -> None:
    model: Any = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=131_072))
    nameless: Any = SimpleNamespace(config=SimpleNamespace())
    bounded = {"vllm_max_model_length": 10_240}
    assert longest_sequence(Grpo(vllm=True, **bounded), model) == 10_240
    assert longest_sequence(Grpo(vllm=True, **bounded), nameless) == 10_240
    assert longest_sequence(Grpo(vllm=False, **bounded), model) == 131_072
    assert longest_sequence(Grpo(vllm=True, vllm_max_model_length=200_000), model) == 131_072
    assert longest_sequence(Grpo(vllm=True), nameless) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vllm_mode": "server"}, "vllm_server_url goes with"),
        ({"vllm_server_url": "http://here:8000"}, "vllm_server_url goes with"),
        ({"vllm_mode": "server", "vllm_server_url": "http://here", "vllm_sleep": True}, "a colocated vLLM's"),
        ({"vllm_mode": "server", "vllm_server_url": "http://me:secret@here"}, "a user or a password"),
        ({"vllm_tensor_parallel": 2}, "does not divide processes = 1"),
        ({"vllm_max_model_length": 1024}, "no room for a prompt"),
        ({"vllm_correction": "sometimes"}, "sequence_mask"),
    ],
)
def test_invalid_grpo_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Grpo(**settings)


def test_a_run_waits_for_unreachable_workers_and_ranks_wait_longer() -> None:
    asking = quick_plan(max_unscorable=0.3, outage_s=600.0)
    assert (patience(asking).max_unscorable, patience(asking).total_s) == (0.3, 600.0)
    rehearsal = Recipe.model_validate(asking.recipe.model_dump() | {"replay": {"on_miss": "unscorable"}})
    assert patience(asking.model_copy(update={"recipe": rehearsal})).max_unscorable == 1.0
    ranks = {"processes": 2, "micro_batch": 64, "deepspeed": "zero3.json"}
    with pytest.raises(ValidationError, match="outage_s = 900 is not less than collective_timeout_s = 900"):
        quick_plan(**ranks, outage_s=900.0, collective_timeout_s=900.0)
    assert quick_plan(**ranks, outage_s=600.0, collective_timeout_s=900.0).recipe.grpo.outage_s == 600.0
