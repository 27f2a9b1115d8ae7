"""A recipe's hyperparameters as flat names and values, as MLflow shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ops.config.recipe import Recipe

_SECTIONS = ("curation", "prompting", "policy", "cold_start", "generation", "grpo", "adaptive", "recursive")
"""What training depends on: evaluation, guards and budgets change no policy."""


def hyperparameters(recipe: Recipe) -> dict[str, str]:
    """`grpo.learning_rate` → `0.0003` and so on: name, seed, pool and each training setting that is set."""
    settings = recipe.model_dump(mode="json", include={"seed", "pool", *_SECTIONS})
    return {"recipe": recipe.name, **dict(_flat(settings, ""))}


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", str(value)
