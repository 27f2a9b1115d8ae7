"""What is changed in a recipe, one thing at a time, before it is trained again: tables of named changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ops.config.base import Name, Settings
from ops.config.loading import load, mistake
from ops.config.recipe import Recipe
from ops.core.errors import ConfigError

Change = dict[str, dict[str, Any]]
"""Section of the recipe (`cold_start`, `grpo`, `prompting`, `policy` …) → field → its value instead."""
ABLATIONS, EXPERIMENTS = "ablations.yaml", "experiments.yaml"
"""Files in config/: what each part of training does; what the Conductor is shown, may say, and its size."""
NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
"""Of an experiment."""


class Ablations(Settings):
    """`config/ablations.yaml` or `config/experiments.yaml`."""

    recipe: Name = "quickstart"
    """What is changed: a file in config/recipes."""
    changes: dict[str, Change]
    """By name."""

    def change(self, name: str, recipe_file: str, file: Path) -> Change:
        """The change of that name to that recipe. Raises `ConfigError` that names `file` where it has none, or is about
        another recipe."""
        if name not in self.changes:
            remedy = f"Changes there: {'; '.join(self.changes)}"
            raise ConfigError(file, f"changes.{name}", "does not exist", remedy)
        if recipe_file != self.recipe:
            problem = f"changes the recipe {self.recipe!r}, not {recipe_file!r}"
            remedy = f"Ask for recipe {self.recipe!r}, or write `recipe: {recipe_file}` there"
            raise ConfigError(file, f"changes.{name}", problem, remedy)
        return self.changes[name]


def load_ablations(config: Path, file: str = ABLATIONS) -> Ablations:
    """One of the two files. Raises `ConfigError`, also for an experiment whose name cannot be its asset's."""
    ablations = load(Ablations, config / file)
    if file == EXPERIMENTS and (odd := [name for name in ablations.changes if not NAME.fullmatch(name)]):
        remedy = "It is an asset's, too: write it with letters, digits and underscores"
        raise ConfigError(config / file, f"changes.{odd[0]}", "cannot be a name", remedy)
    return ablations


def experiments_now(config: Path) -> Ablations | str:
    """What `config/experiments.yaml` says, or what is wrong with it: no run that is about something else stops here."""
    try:
        return load_ablations(config, EXPERIMENTS)
    except (ConfigError, OSError) as error:
        return str(error)


def changed(recipe: Recipe, change: Change, file: Path) -> Recipe:
    """The recipe with a change made. Raises `ConfigError` that names `file` where the result is no recipe."""
    values = recipe.model_dump(mode="json")
    for section, fields in change.items():
        values[section] = (values.get(section) or {}) | fields
    try:
        return Recipe.of_file(values)
    except ValidationError as error:
        raise mistake(file, Recipe, error) from None
