"""What an ablation changes in a recipe: one table of named changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ops.config.base import Settings
from ops.config.loading import load, mistake
from ops.config.recipe import Recipe

Change = dict[str, dict[str, Any]]
"""Section of the recipe (`cold_start`, `grpo`) → field → its value instead."""


class Ablations(Settings):
    """`config/ablations.yaml`."""

    recipe: str = "quickstart"
    """What is changed: a file in config/recipes."""
    changes: dict[str, Change]
    """By name."""


def load_ablations(config: Path) -> Ablations:
    """`config/ablations.yaml`. Raises `ConfigError`."""
    return load(Ablations, config / "ablations.yaml")


def changed(recipe: Recipe, change: Change, file: Path) -> Recipe:
    """The recipe with a change made. Raises `ConfigError` that names `file` where the result is no recipe."""
    values = recipe.model_dump()
    for section, fields in change.items():
        values[section] = (values.get(section) or {}) | fields
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise mistake(file, Recipe, error) from None
