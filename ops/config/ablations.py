"""What is changed in a recipe, one thing at a time, before it is trained again: tables of named changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ops.config.base import Settings
from ops.config.loading import load, mistake
from ops.config.recipe import Recipe

Change = dict[str, dict[str, Any]]
"""Section of the recipe (`cold_start`, `grpo`, `prompting`, `policy` …) → field → its value instead."""
ABLATIONS, EXPERIMENTS = "ablations.yaml", "experiments.yaml"
"""Files in config/: what each part of training does; what the Conductor is shown, may say, and its size."""


class Ablations(Settings):
    """`config/ablations.yaml` or `config/experiments.yaml`."""

    recipe: str = "quickstart"
    """What is changed: a file in config/recipes."""
    changes: dict[str, Change]
    """By name."""


def load_ablations(config: Path, file: str = ABLATIONS) -> Ablations:
    """One of the two files. Raises `ConfigError`."""
    return load(Ablations, config / file)


def changed(recipe: Recipe, change: Change, file: Path) -> Recipe:
    """The recipe with a change made. Raises `ConfigError` that names `file` where the result is no recipe."""
    values = recipe.model_dump()
    for section, fields in change.items():
        values[section] = (values.get(section) or {}) | fields
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise mistake(file, Recipe, error) from None
