"""What travels together below the assets: the checkout, the recipe and its pool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ops.config.loading import load_pool, load_recipe, pool_file
from ops.config.pool import Pool
from ops.config.recipe import Recipe
from ops.core.workspace import Workspace


@dataclass(frozen=True)
class Setup:
    """Where, what and with whom: what nearly every operation is about."""

    workspace: Workspace
    recipe: Recipe
    pool: Pool

    @classmethod
    def read(cls, workspace: Workspace, recipe: str, seed: int | None = None) -> Self:
        """The recipe `config/recipes/RECIPE.yaml` and its pool as their files are now. Raises `ConfigError`."""
        settings = load_recipe(workspace.config, recipe, seed)
        return cls(workspace, settings, load_pool(workspace.config, settings.pool))

    @property
    def run(self) -> str:
        """The run that spending is counted under: recipe, seed and what the workers answer."""
        return f"{self.recipe.name}-{self.recipe.seed}-{self.pool.answers_key}"

    @property
    def pool_file(self) -> Path:
        """The pool's file, which messages about it name."""
        return pool_file(self.workspace.config, self.recipe.pool)
