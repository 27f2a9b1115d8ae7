"""The inputs of a run: checkout, recipe and pools (`Setup`), and all of them resolved at launch (`Snapshot`).

A run reads only its snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from ops.config.base import Seed, Settings, digest
from ops.config.loading import Omission, load_deepspeed, load_gate, load_retraining, pool_file, resolve_recipe
from ops.config.operations import PoolChange, PromotionGate, Retraining
from ops.config.pool import Pool, Worker
from ops.config.recipe import Recipe
from ops.config.studies import Studies, try_load_studies
from ops.core.atomic import write_text
from ops.core.digests import check_digest, replace_with_digest, set_aside
from ops.core.errors import DataError
from ops.core.settings_files import read_settings_text
from ops.core.workspace import Workspace

_RETRAINING = "-retraining-of-version-"
"""The part of a ledger run's name by which it is known as that of a retraining."""


@dataclass(frozen=True)
class Setup:
    """Workspace, recipe and pools: the argument of nearly every operation."""

    workspace: Workspace
    recipe: Recipe
    pool: Pool
    pools: Mapping[str, Pool] = field(default_factory=dict)
    """Name → pool, for the pools that the recipe's evaluation names."""
    left_out: tuple[Omission, ...] = ()
    """What the recipe goes without here."""
    account: str = ""
    """The name under which the ledger counts spending; empty: the run's (`run`)."""

    @classmethod
    def read(cls, workspace: Workspace, recipe: str, seed: int | None = None) -> Self:
        """Read the recipe `config/recipes/RECIPE.yaml` and its pool from the present files. Raises `ConfigError`."""
        return cls(workspace, *resolve_recipe(workspace.config, recipe, seed))

    def for_benchmark(self, benchmark: str) -> Self:
        """Return the setup with which the evaluation runs this benchmark: its pool, and the benchmark's own
        settings."""
        settings = self.recipe.evaluation.for_benchmark(benchmark)
        pool = self.pool if settings.pool is None else self.pools[settings.pool]
        return replace(self, recipe=self.recipe.model_copy(update={"evaluation": settings}), pool=pool)

    @property
    def for_opponents(self) -> Self:
        """Return the setup with which the evaluation asks the workers alone and the baselines."""
        settings = self.recipe.evaluation.for_opponents
        return replace(self, recipe=self.recipe.model_copy(update={"evaluation": settings}))

    @property
    def all_pools(self) -> dict[str, Pool]:
        """Return name → pool: the recipe's own, those of its evaluation, and of other pools the judges."""
        return self.judge_pools | {self.recipe.pool: self.pool, **self.pools}

    @property
    def judge_pools(self) -> dict[str, Pool]:
        """Return name → the judges of that pool, for pools other than the recipe's own."""
        judges: dict[str, dict[str, Worker]] = {}
        for judge in self.recipe.judges.values():
            if judge.pool not in (None, self.recipe.pool):
                judges.setdefault(judge.pool, {})[judge.worker] = judge.judge
        return {name: Pool(name=name, workers=tuple(own.values())) for name, own in judges.items()}

    @property
    def run(self) -> str:
        """Return the name under which the ledger counts spending: recipe, seed and the pool's answers key, unless the
        setup has its own account."""
        return self.account or f"{self.recipe.name}-{self.recipe.seed}-{self.pool.answers_key}"

    @property
    def is_retraining(self) -> bool:
        """Return whether the calls are those of a retraining (`Snapshot.account`)."""
        return _RETRAINING in self.account

    def with_account(self, name: str) -> Self:
        """Return the setup of calls beside the run, which the ledger counts as a run of its own with the same cap."""
        return replace(self, account=f"{self.run}-{name}")

    @property
    def pool_file(self) -> Path:
        """Return the pool's file, which error messages name."""
        return pool_file(self.workspace.config, self.recipe.pool)


def group_by_setup(setup: Setup, benchmarks: Iterable[str]) -> list[tuple[Setup, list[str]]]:
    """Return the benchmarks in groups with the same workers and repeats, each with its setup `for_benchmark`."""
    groups: dict[tuple[str, int], tuple[Setup, list[str]]] = {}
    for benchmark in benchmarks:
        asked = setup.for_benchmark(benchmark)
        key = asked.pool.answers_key, asked.recipe.evaluation.repeats
        groups.setdefault(key, (asked, []))[1].append(benchmark)
    return list(groups.values())


TEXT_FOLDERS = ("few_shots", "cold_start")
"""Folders of `data/` with texts written by people."""


class Snapshot(Settings):
    """Recipe, pool, gate and commit of one run. An edit of a file in `config/` takes effect in the next run."""

    recipe_file: str
    """The file in config/recipes, without `.yaml`; `NAME@POOL` with another pool than its own."""
    seed: Seed | None = None
    """The run's own seed, if one was given; the recipe has it too."""
    recipe: Recipe
    pool: Pool
    evaluation_pools: dict[str, Pool] = Field(default_factory=dict)
    """Keyed by the names in the recipe's evaluation."""
    left_out: tuple[Omission, ...] = ()
    """What the recipe goes without: gated benchmarks without a token, and workers above its price limit."""
    gate: PromotionGate
    deepspeed: dict[str, Any] | None = None
    """The contents of the recipe's DeepSpeed file."""
    git_commit: str
    texts: dict[str, str] = Field(default_factory=dict)
    """Path below `data/` → content, for the few-shot examples and the cold start's subtasks."""
    retraining: Retraining = Retraining()
    studies: Studies | str = Studies()
    """The contents of `config/studies.yaml`, or its error."""
    change: PoolChange | None = None
    """The change of the champion's pool that the run is about: what it trains goes on from that champion. None: it is
    about none."""

    @classmethod
    def capture(cls, config: Path, recipe_file: str, seed: int | None, git_commit: str) -> Snapshot:
        """Read the present files below `config`. Raises `ConfigError`."""
        recipe, pool, evaluation_pools, left_out = resolve_recipe(config, recipe_file, seed)
        return cls(
            recipe_file=recipe_file,
            seed=seed,
            recipe=recipe,
            pool=pool,
            evaluation_pools=evaluation_pools,
            left_out=left_out,
            gate=load_gate(config),
            deepspeed=load_deepspeed(config, recipe),
            git_commit=git_commit,
            texts=_read_texts(config.parent / "data"),
            retraining=load_retraining(config),
            studies=try_load_studies(config),
        )

    @classmethod
    def read(cls, folder: Path, key: str) -> Snapshot:
        """Read the snapshot that `write` stored under `key`. Raises `DataError`."""
        file, remedy = _snapshot_file(folder, key), "Start a new run, which stores its settings again"
        try:
            check_digest(file, remedy, missing="accepted")
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(file, "", "does not exist, and a run reads all its settings from it", remedy) from None
        except (OSError, ValueError) as error:
            raise DataError(file, "", f"is not a snapshot of a run ({error})", remedy) from None

    def setup(self, workspace: Workspace) -> Setup:
        """Return the setup of its run in that checkout; its texts are written beside the snapshots."""
        if self.texts:
            workspace = replace(workspace, kept_texts=self._keep_texts(workspace.snapshots))
        return replace(
            Setup(workspace, self.recipe, self.pool, self.evaluation_pools, self.left_out), account=self.account
        )

    @property
    def account(self) -> str:
        """Return the name under which the ledger counts the spending of a retraining; empty for any other run."""
        if self.change is None:
            return ""
        return f"{self.recipe.name}-{self.recipe.seed}-{self.pool.answers_key}{_RETRAINING}{self.change.version}"

    def _keep_texts(self, folder: Path) -> Path:
        kept = folder / f"texts-{digest(self.texts)}"
        for name, text in self.texts.items():
            if _read_content(kept / name) != text:
                _set_file_aside(kept / name, "It is written again.")
                write_text(kept / name, text)
        return kept

    @property
    def key(self) -> str:
        """Return a hash (12 hex digits) of the whole snapshot."""
        return digest(self.model_dump(mode="json"))

    def write(self, folder: Path) -> Path:
        """Store the snapshot atomically as `FOLDER/KEY.json`; equal snapshots are one file."""
        file, text = (
            _snapshot_file(folder, self.key),
            json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False),
        )
        if _read_content(file) != text or _is_damaged(file):
            _set_file_aside(file, "The snapshot is written again.")
            with replace_with_digest(file) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return file

    def __str__(self) -> str:
        """One line for a log."""
        facts = (
            f"recipe {self.recipe_file}, seed {self.recipe.seed}",
            f"pool {self.pool.name} (answers {self.pool.answers_key}, prices {self.pool.prices_key})",
            f"commit {self.git_commit}",
        )
        return f"snapshot {self.key}: {'; '.join(facts)}"


def _read_texts(data: Path) -> dict[str, str]:
    files = sorted(file for name in TEXT_FOLDERS for file in (data / name).glob("*.yaml"))
    return {str(file.relative_to(data)): read_settings_text(file) for file in files}


def _read_content(file: Path) -> str | None:
    """Return the text of a file; None if there is none, or nothing that is text."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
        return None


def _is_damaged(file: Path) -> bool:
    """Return whether the digest file of a snapshot is damaged, or belongs to another content."""
    try:
        check_digest(file, "", missing="accepted")
    except DataError:
        return True
    return False


def _set_file_aside(file: Path, then: str) -> None:
    if file.exists():
        set_aside(file, "is not what was written", then)


def _snapshot_file(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"
