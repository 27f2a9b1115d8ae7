"""What a run is about: checkout, recipe and pools (`Setup`), and all of it resolved at launch (`Snapshot`).

A run reads nothing else than its snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from ops.config.base import Seed, Settings, digest
from ops.config.loading import (
    check_against_pool,
    load_deepspeed,
    load_evaluation_pools,
    load_gate,
    load_pool,
    load_recipe,
    load_retraining,
    pool_file,
)
from ops.config.operations import PoolChange, PromotionGate, Retraining
from ops.config.pool import Pool
from ops.config.recipe import Recipe
from ops.config.studies import Studies, studies_now
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.settings_files import read_text
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
        check_against_pool(settings, pool)
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


TEXTS = ("few_shots", "cold_start")
"""Folders of `data/` with what people write."""


class Snapshot(Settings):
    """Recipe, pool, gate and commit of one run. An edit of a file in `config/` takes effect in the next run."""

    recipe_file: str
    """The file in config/recipes, without `.yaml`."""
    seed: Seed | None = None
    """The run's own seed, where one was given; the recipe has it too."""
    recipe: Recipe
    pool: Pool
    evaluation_pools: dict[str, Pool] = Field(default_factory=dict)
    """By the names that the recipe's evaluation gives them."""
    gate: PromotionGate
    deepspeed: dict[str, Any] | None = None
    """What the recipe's DeepSpeed file says."""
    git_commit: str
    texts: dict[str, str] = Field(default_factory=dict)
    """Path below `data/` → content, of the few-shots and of the cold start's subtasks."""
    retraining: Retraining = Retraining()
    studies: Studies | str = Studies()
    """What `config/studies.yaml` says, or what is wrong with it."""
    change: PoolChange | None = None
    """The change of the champion's pool that the run is about: what it trains goes on from that champion. None: it is
    about none."""

    @classmethod
    def take(cls, config: Path, recipe_file: str, seed: int | None, git_commit: str) -> Snapshot:
        """Read the files below `config` as they are now. Raises `ConfigError`."""
        recipe = load_recipe(config, recipe_file, seed)
        pool = load_pool(config, recipe.pool)
        check_against_pool(recipe, pool)
        return cls(
            recipe_file=recipe_file,
            seed=seed,
            recipe=recipe,
            pool=pool,
            evaluation_pools=load_evaluation_pools(config, recipe, pool),
            gate=load_gate(config),
            deepspeed=load_deepspeed(config, recipe),
            git_commit=git_commit,
            texts=_texts(config.parent / "data"),
            retraining=load_retraining(config),
            studies=studies_now(config),
        )

    @classmethod
    def read(cls, folder: Path, key: str) -> Snapshot:
        """The snapshot that `write` stored under `key`. Raises `DataError`."""
        file = _file(folder, key)
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            remedy = "It is what the run works from: start a new run"
            raise DataError(file, "(file)", f"is no snapshot of a run ({error})", remedy) from None

    def setup(self, workspace: Workspace) -> Setup:
        """What its run works with, in that checkout; its texts are written beside the snapshots."""
        if self.texts:
            workspace = replace(workspace, kept_texts=self._keep_texts(workspace.snapshots))
        return Setup(workspace, self.recipe, self.pool, self.evaluation_pools)

    def _keep_texts(self, folder: Path) -> Path:
        kept = folder / f"texts-{digest(self.texts)}"
        for name, text in self.texts.items():
            if not (kept / name).is_file():
                write_text(kept / name, text)
        return kept

    @property
    def key(self) -> str:
        """Hash (12 hex digits) of all of it."""
        return digest(self.model_dump(mode="json"))

    def write(self, folder: Path) -> Path:
        """Store it as `FOLDER/KEY.json`, whole or not at all; equal snapshots are one file."""
        file = _file(folder, self.key)
        if not file.is_file():
            write_text(file, json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False))
        return file

    def __str__(self) -> str:
        """One line for a log."""
        facts = (
            f"recipe {self.recipe_file}, seed {self.recipe.seed}",
            f"pool {self.pool.name} (answers {self.pool.answers_key}, prices {self.pool.prices_key})",
            f"commit {self.git_commit}",
        )
        return f"snapshot {self.key}: {'; '.join(facts)}"


def _texts(data: Path) -> dict[str, str]:
    files = sorted(file for name in TEXTS for file in (data / name).glob("*.yaml"))
    return {str(file.relative_to(data)): read_text(file) for file in files}


def _file(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"
