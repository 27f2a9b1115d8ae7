"""The shape of a language model, which determines its number of parameters and its memory."""

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
"""The file in the folder `config` with the shapes of models by name."""
_QKV_BIAS = {"qwen2"}
_QK_NORM = {"qwen3"}
_FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
"""The supported values of `model_type`. The blocks of these models consist of attention, a gated MLP and two norms."""


class ModelShape(Settings):
    """The dimensions of a decoder of the Llama family (Llama, Mistral, Qwen2, Qwen3)."""

    hidden: int = Field(ge=1)
    """The dimension of the hidden states."""
    intermediate: int = Field(ge=1)
    """The width of the MLP in a block."""
    layers: int = Field(ge=1)
    """The number of blocks."""
    heads: int = Field(ge=1)
    """The number of query heads."""
    kv_heads: int = Field(ge=1)
    """The number of key heads, which is that of the value heads."""
    vocabulary: int = Field(ge=1)
    """The number of tokens in the vocabulary."""
    head_dim: int = Field(default=0, ge=0)
    """The dimension of a head. 0 stands for the hidden size divided by the number of heads."""
    tied: bool = False
    """True if the output layer shares the embedding's weights."""
    qkv_bias: bool = False
    """True if the projections of queries, keys and values have biases."""
    qk_norm: bool = False
    """True if queries and keys are normalised."""
    context: int = Field(default=0, ge=0)
    """The longest sequence in tokens. 0 means that it is not stated."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the shape that a model's `config.json` states, or None for an unsupported architecture."""
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
        """Return the total dimension of the query heads."""
        return self.heads * self.head_width

    @property
    def head_width(self) -> int:
        """Return the dimension of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Return the total dimension of the key heads, which is equal to that of the value heads."""
        return self.kv_heads * self.head_width

    @property
    def embedding_parameters(self) -> int:
        """Return the number of parameters of the embedding. The output layer has the same number."""
        return self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Return the number of parameters of one block."""
        attention = self.hidden * (2 * self.query_width + 2 * self.kv_width)
        biases = (self.query_width + 2 * self.kv_width) * self.qkv_bias
        norms = 2 * self.hidden + 2 * self.head_width * self.qk_norm
        return attention + biases + norms + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Return the total number of parameters."""
        return self.embedding_parameters * (1 if self.tied else 2) + self.layers * self.layer_parameters + self.hidden


class ModelShapes(Settings):
    """The contents of `config/models.yaml`, which gives the shapes of models by name."""

    models: dict[str, ModelShape]
    """The shape of each model by its name."""


class KnownShape(NamedTuple):
    """A model's shape with its source."""

    shape: ModelShape
    """The shape of the model."""
    source: str
    """Where the shape comes from, in words."""
    is_local: bool = True
    """True if the model's files are on this machine or are created by the run."""


def find_shape(policy: Policy, workspace: Workspace) -> KnownShape | None:
    """Return the shape of the policy's model without any download, or None if it is unknown or the policy has no
    weights.

    A pretrained model's shape comes from `config.json` in its folder or in the hub's local cache, otherwise from
    `config/models.yaml`, by the model's full name or the last part of it. Raises `ConfigError` for an invalid
    `models.yaml`.
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
    # The files of a package are installed. If they are not, the requirements say so before anything is spent.
    fetched = local.is_dir() or policy.package is not None
    return KnownShape(named, f"config/{MODELS_FILE}", is_local=fetched) if named else None


def _scratch_shape(policy: ScratchPolicy) -> ModelShape:
    """Return the shape of the model that `ops.training.cold_start.supervised.build_scratch_model` makes.

    Its actual vocabulary may be smaller.
    """
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
    """Return the path of the model's `config.json` in the hub's local cache, or None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    if policy.model.count("/") != 1 or policy.model.startswith((".", "/", "~")):
        return None
    found = try_to_load_from_cache(policy.model, "config.json", revision=policy.revision)
    return Path(found) if isinstance(found, str) else None
