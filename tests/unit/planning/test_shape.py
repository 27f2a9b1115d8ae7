"""A model's shape: its parameters are those of the real model, and it is found where it lies."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ops.config import PretrainedPolicy, ScratchPolicy, load_settings
from ops.core.workspace import Workspace
from ops.planning.model_shape import MODELS_FILE, ModelShape, ModelShapes, find_shape
from ops.training.cold_start.examples import SftExample
from ops.training.cold_start.supervised import build_scratch_model

WORKSPACE = Workspace.find()
SIZES = {
    "hidden_size": 48, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 300,
}  # fmt: skip
PUBLISHED = {"Qwen/Qwen2.5-7B": 7_615_616_512, "Qwen/Qwen2.5-3B": 3_085_938_688, "SmolLM2-135M-Instruct": 134_515_008}
"""Of their safetensors."""


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("more", [{}, {"num_key_value_heads": 6}, {"num_hidden_layers": 1, "hidden_size": 96}])
@pytest.mark.parametrize(
    ("config", "model"),
    [(Qwen2Config, Qwen2ForCausalLM), (Qwen3Config, Qwen3ForCausalLM), (LlamaConfig, LlamaForCausalLM)],
)
def test_the_parameters_are_those_of_the_model(config: type, model: type, more: dict[str, int], tied: bool) -> None:
    settings = config(**(SIZES | more), tie_word_embeddings=tied)
    with torch.device("meta"):
        real = sum(each.numel() for each in model(settings).parameters())
    shape = ModelShape.from_config(json.loads(settings.to_json_string(use_diff=False)))
    assert shape is not None
    assert shape.parameters == real


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_published_parameters(name: str) -> None:
    known = find_shape(PretrainedPolicy(model=name), WORKSPACE)
    assert known is not None
    assert known.shape.parameters == PUBLISHED[name]


def test_a_published_shape_is_that_of_the_real_model() -> None:
    shape = load_settings(ModelShapes, WORKSPACE.config / MODELS_FILE).models["Qwen/Qwen2.5-7B"]
    settings = Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen2ForCausalLM(settings)
    assert sum(each.numel() for each in model.parameters()) == shape.parameters
    assert sum(each.numel() for each in model.model.layers[0].parameters()) == shape.layer_parameters


def test_a_policy_made_from_scratch_has_the_parameters_that_it_is_planned_with() -> None:
    settings = ScratchPolicy(vocabulary=320, hidden=32, layers=2, heads=4)
    said = "model_id = [0]\nsubtasks = ['Solve it.']\naccess_list = [[]]"
    example: SftExample = {
        "prompt": [{"role": "user", "content": "What is 2 + 2?"}],
        "completion": [{"role": "assistant", "content": said}],
    }
    model, tokenizer = build_scratch_model(settings, [example], 1)
    known = find_shape(settings.model_copy(update={"vocabulary": len(tokenizer)}), WORKSPACE)
    assert known is not None
    assert known.shape.parameters == sum(each.numel() for each in model.parameters())


def test_a_local_folder_and_the_hubs_cache_come_before_the_published_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Qwen2Config(**SIZES).to_json_string(use_diff=False)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(config, encoding="utf-8")
    workspace = Workspace(tmp_path)
    for model in (str(folder), "model"):
        known = find_shape(PretrainedPolicy(model=model), workspace)
        assert known is not None and known.shape.hidden == 48 and known.is_local
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen2.5-7B" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(config, encoding="utf-8")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("c0ffee", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = find_shape(PretrainedPolicy(model="Qwen/Qwen2.5-7B"), workspace)
    assert cached is not None and cached.shape.hidden == 48
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "nothing"))
    published = find_shape(PretrainedPolicy(model="Qwen/Qwen2.5-7B"), workspace)
    assert published is not None and published.shape.hidden == 3584 and not published.is_local


def test_an_unknown_model_has_no_shape(tmp_path: Path) -> None:
    assert find_shape(PretrainedPolicy(model="unknown/unheard-of"), Workspace(tmp_path)) is None
    assert ModelShape.from_config({"model_type": "mamba"}) is None
