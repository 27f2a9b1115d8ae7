"""What travels together below the assets: the checkout, the recipe and its pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from ops.config.loading import check_sizes, load_evaluation_pools, load_pool, load_recipe, pool_file
from ops.config.pool import Pool
from ops.config.recipe import Recipe
from ops.core.workspace import Workspace


@dataclass(frozen=True)
class Setup:
    """Where, what and with whom: what nearly every operation is about."""

    workspace: Workspace
    recipe: Recipe
    pool: Pool
    pools: Mapping[str, Pool] = field(default_factory=dict)
    """Name → pool, of those that the recipe's evaluation names."""

    @classmethod
    def read(cls, workspace: Workspace, recipe: str, seed: int | None = None) -> Self:
        """The recipe `config/recipes/RECIPE.yaml` and its pool as their files are now. Raises `ConfigError`."""
        settings = load_recipe(workspace.config, recipe, seed)
        pool = load_pool(workspace.config, settings.pool)
        check_sizes(settings, pool)
        return cls(workspace, settings, pool, load_evaluation_pools(workspace.config, settings, pool))

    def asked_on(self, benchmark: str) -> Self:
        """The setup as its evaluation asks this benchmark: its pool, and the benchmark's own settings."""
        settings = self.recipe.evaluation.of(benchmark)
        pool = self.pool if settings.pool is None else self.pools[settings.pool]
        return replace(self, recipe=self.recipe.model_copy(update={"evaluation": settings}), pool=pool)

    @property
    def every_pool(self) -> dict[str, Pool]:
        """Name → pool: the recipe's own and those of its evaluation."""
        return {self.recipe.pool: self.pool, **self.pools}

    @property
    def run(self) -> str:
        """The run that spending is counted under: recipe, seed and what the workers answer."""
        return f"{self.recipe.name}-{self.recipe.seed}-{self.pool.answers_key}"

    @property
    def pool_file(self) -> Path:
        """The pool's file, which messages about it name."""
        return pool_file(self.workspace.config, self.recipe.pool)


def asked_alike(setup: Setup, benchmarks: Iterable[str]) -> list[tuple[Setup, list[str]]]:
    """The benchmarks in groups that the same workers are asked equally often, each with the setup `asked_on` them."""
    groups: dict[tuple[str, int], tuple[Setup, list[str]]] = {}
    for benchmark in benchmarks:
        asked = setup.asked_on(benchmark)
        key = asked.pool.answers_key, asked.recipe.evaluation.repeats
        groups.setdefault(key, (asked, []))[1].append(benchmark)
    return list(groups.values())
