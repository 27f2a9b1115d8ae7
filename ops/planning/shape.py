"""A language model's shape, which determines its parameter count and memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field

from ops.config import Policy, PretrainedPolicy, ScratchPolicy, Settings, load_settings
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace

MODELS_FILE = "models.yaml"
_QKV_BIAS = {"qwen2"}
_QK_NORM = {"qwen3"}
_FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
"""Supported `model_type`s: their blocks consist of attention, a gated MLP and two norms."""


class ModelShape(Settings):
    """A decoder of the Llama family (Llama, Mistral, Qwen2, Qwen3)."""

    hidden: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    head_dim: int = Field(default=0, ge=0)
    """Dimension of a head; 0: hidden ÷ heads."""
    tied: bool = False
    """Whether the output layer shares the embedding's weights."""
    qkv_bias: bool = False
    qk_norm: bool = False
    context: int = Field(default=0, ge=0)
    """Longest sequence (tokens); 0: not stated."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self | None:
        """Read the shape from a model's `config.json`; None for an unsupported architecture."""
        family = config.get("model_type")
        if family not in _FAMILIES:
            return None
        heads = config["num_attention_heads"]
        return cls(
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            vocabulary=config["vocab_size"],
            head_dim=config.get("head_dim") or 0,
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family in _QKV_BIAS or bool(config.get("attention_bias", False)),
            qk_norm=family in _QK_NORM,
            context=config.get("max_position_embeddings") or 0,
        )

    @property
    def query_width(self) -> int:
        """Total dimension of the query heads."""
        return self.heads * self.head_width

    @property
    def head_width(self) -> int:
        """Dimension of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Total dimension of the key heads, equal to that of the value heads."""
        return self.kv_heads * self.head_width

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding; the output layer has the same number."""
        return self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block."""
        attention = self.hidden * (2 * self.query_width + 2 * self.kv_width)
        biases = (self.query_width + 2 * self.kv_width) * self.qkv_bias
        norms = 2 * self.hidden + 2 * self.head_width * self.qk_norm
        return attention + biases + norms + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Total number of parameters."""
        return self.embedding_parameters * (1 if self.tied else 2) + self.layers * self.layer_parameters + self.hidden


class ModelShapes(Settings):
    """`config/models.yaml`: model name → shape."""

    models: dict[str, ModelShape]


class KnownShape(NamedTuple):
    """A shape and its source."""

    shape: ModelShape
    source: str
    is_local: bool = True
    """Whether the model's files are on this machine or are created by the run."""


def find_shape(policy: Policy, workspace: Workspace) -> KnownShape | None:
    """The policy's shape, without any download; None if unknown or if it has no weights.

    Raises `ConfigError` for an invalid `models.yaml`.

    A pretrained model's shape comes from `config.json` in its folder or in the hub's local cache, otherwise from
    `config/models.yaml`, by its full name or the last part of it.
    """
    if isinstance(policy, ScratchPolicy):
        return KnownShape(_scratch_shape(policy), "the recipe")
    if not isinstance(policy, PretrainedPolicy):
        return None
    folder = Path(policy.model).expanduser()
    local = folder if folder.is_absolute() else workspace.root / folder
    file = local / "config.json" if local.is_dir() else _cached_config(policy)
    if file is not None and file.is_file():
        shape = ModelShape.from_config(json.loads(file.read_text(encoding="utf-8")))
        if shape is not None:
            return KnownShape(shape, "its config.json")
    own = workspace.config / MODELS_FILE
    known = load_settings(ModelShapes, own if own.is_file() else resources_folder() / "config" / MODELS_FILE).models
    by_name = {name.rpartition("/")[2].lower(): shape for name, shape in known.items()}
    named = known.get(policy.model) or by_name.get(folder.name.lower())
    # A package's files are installed; otherwise the requirements list the package before anything is spent.
    fetched = local.is_dir() or policy.package is not None
    return KnownShape(named, f"config/{MODELS_FILE}", is_local=fetched) if named else None


def _scratch_shape(policy: ScratchPolicy) -> ModelShape:
    """The shape of `ops.training.cold_start.supervised.build_scratch_model`; its actual vocabulary may be smaller."""
    return ModelShape(
        hidden=policy.hidden,
        intermediate=3 * policy.hidden,
        layers=policy.layers,
        heads=policy.heads,
        kv_heads=policy.heads,
        vocabulary=policy.vocabulary,
        tied=True,
        qkv_bias=True,
        context=policy.max_tokens,
    )


def _cached_config(policy: PretrainedPolicy) -> Path | None:
    """The model's `config.json` in the hub's local cache."""
    from huggingface_hub import try_to_load_from_cache

    if policy.model.count("/") != 1 or policy.model.startswith((".", "/", "~")):
        return None
    found = try_to_load_from_cache(policy.model, "config.json", revision=policy.revision)
    return Path(found) if isinstance(found, str) else None
