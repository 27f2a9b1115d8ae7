"""Everything that a run was asked to do, resolved when it is launched: the run reads nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ops.config.base import Seed, Settings, digest
from ops.config.loading import (
    check_sizes,
    load_deepspeed,
    load_evaluation_pools,
    load_gate,
    load_pool,
    load_recipe,
    load_retraining,
)
from ops.config.pool import Pool
from ops.config.promotion import PromotionGate
from ops.config.recipe import Recipe
from ops.config.retraining import Change, Retraining
from ops.config.setup import Setup
from ops.config.studies import Studies, studies_now
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.settings_files import read_text
from ops.core.workspace import Workspace

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
    change: Change | None = None
    """The change of the pool that the run is about; None: it is about none."""
    conductor: Literal["as the recipe", "champion", "fine-tuned"] = "as the recipe"
    """Whose policy is scored, compared and registered: the one that the recipe's own training makes, the changed
    pool's champion as it is, or that champion fine-tuned."""

    @classmethod
    def take(cls, config: Path, recipe_file: str, seed: int | None, git_commit: str) -> Snapshot:
        """Read the files below `config` as they are now. Raises `ConfigError`."""
        recipe = load_recipe(config, recipe_file, seed)
        pool = load_pool(config, recipe.pool)
        check_sizes(recipe, pool)
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
