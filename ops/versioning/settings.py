"""The recipe of the recorded data, in `data/settings.yaml`.

The file names the recipe and the seed for the commands of dvc.yaml, and has the resolved settings of recipe and pool
that change data. The stages use its sections as parameters, so an edit elsewhere (a learning rate, a worker's limits)
leaves the data current, and writing out a default changes nothing. No stage depends on a file in `config/`: a run reads
its snapshot, and dvc.lock must not record a later edit as its input. Git ignores the file, as everything that a run
writes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource, Pool, Recipe, Snapshot
from ops.core.atomic import write_text
from ops.core.code_version import code_version
from ops.core.errors import DataError
from ops.core.registry import PROVIDERS
from ops.core.settings_files import read_yaml
from ops.core.workspace import Workspace
from ops.grading.version import grader_version
from ops.versioning.dvc import commit_stages, is_in_cache, push_stages, read_stage_version
from ops.versioning.without_dvc import has_dvc, hash_stage_output

DATA_SECTIONS = ("name", "seed", "pool", "benchmarks", "curation", "precaching", "replay")
"""The sections of a recipe that change data."""


def record_stage(workspace: Workspace, snapshot: Snapshot, stage: str) -> str:
    """Record the output of `stage` in DVC, made in a run of this snapshot, unless it is recorded; push it if the recipe
    says so.

    Returns the version of the output; without DVC, this is a hash of its files. Raises `DataError`.
    """
    recipe = snapshot.recipe
    write_settings(workspace, recipe, snapshot.pool, snapshot.recipe_file)
    if not has_dvc(workspace):
        return hash_stage_output(workspace, stage)
    noted = workspace.state / "recorded" / f"{stage}.json"
    output = [hash_stage_output(workspace, "settings"), hash_stage_output(workspace, stage), recipe.versions.push]
    if (known := _find_recorded_version(workspace, stage)) and _read_settings(noted) == [*output, known]:
        return known
    made = commit_stages(workspace, "settings", stage)
    if recipe.versions.push:
        push_stages(workspace, recipe.versions, "settings", stage)
    write_text(noted, json.dumps([*output, made]))
    return made


def _find_recorded_version(workspace: Workspace, stage: str) -> str:
    """Return the version of the stage in dvc.lock; "" if it or the settings are not recorded, or DVC's cache lacks
    them."""
    try:
        stored = all(is_in_cache(workspace, name) for name in ("settings", stage))
        return read_stage_version(workspace, stage) if stored else ""
    except DataError:
        return ""


def _read_settings(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def list_stage_modules(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return for each data stage the modules whose code, together with what they import, decides its output."""
    catalogue = tuple(f"ops.benchmarks.catalogue.{name}" for name in recipe.benchmarks)
    plugins = [provider.plugin for provider in PROVIDERS.values() if provider.plugin]
    embedded = any(source.source == "embedded" for source in recipe.benchmarks.values())
    return {
        "raw_problems": ("ops.stages.raw_problems", *catalogue, *(plugins if embedded else ())),
        "shortlist": ("ops.stages.curation",),
        "worker_responses": ("ops.precaching.precache",),
        "worker_profiles": ("ops.stages.profiles",),
        "training_mix": ("ops.stages.curation", f"ops.curation.selectors.{recipe.curation.selector}"),
    }


def read_recorded_recipe(workspace: Workspace) -> tuple[str, int | None]:
    """Return the recipe and the seed of the recorded data; the quickstart and None if no data was recorded yet.

    Raises `PodiumError` if the file was not written by `write_settings`.
    """
    file = get_settings_file(workspace)
    if not os.path.lexists(file):
        return "quickstart", None
    values = read_yaml(file)
    recipe, seed = (values.get("recipe"), values.get("seed")) if isinstance(values, dict) else (None, None)
    if not isinstance(recipe, str) or not isinstance(seed, int) or isinstance(seed, bool):
        problem = "does not name the recipe and the seed of the recorded data"
        raise DataError(file, "recipe, seed", problem, "Write it again with `podium data settings RECIPE`")
    return recipe, seed


def select_data_settings(recipe: Recipe, pool: Pool) -> dict[str, Any]:
    """Return the settings that change the output of a data stage, with their defaults, and the versions of the stages'
    code and of the graders."""
    workers = {worker.name: worker.identity for worker in pool.workers}
    prices = {worker.name: worker.price.as_stated() if worker.price else None for worker in pool.workers}
    # The forecast of the training signal assumes groups of this size.
    grpo = {"rollouts_per_question": recipe.grpo.rollouts_per_question}
    stated = recipe.model_dump(mode="json", include={*DATA_SECTIONS})
    for source in stated["benchmarks"].values():
        if source["max_failing_gold_share"] == BenchmarkSource.model_fields["max_failing_gold_share"].default:
            del source["max_failing_gold_share"]  # newer than the recorded data, which stays current
    code = {stage: code_version(*modules) for stage, modules in list_stage_modules(recipe).items()}
    graders = {name: grader_version(BENCHMARKS[name].grader_name(source)) for name, source in recipe.benchmarks.items()}
    return stated | {"grpo": grpo, "workers": workers, "prices": prices, "code": code, "graders": graders}


def get_settings_file(workspace: Workspace) -> Path:
    """Return the path of the settings of the recorded data."""
    return workspace.data / "settings.yaml"


def write_settings(workspace: Workspace, recipe: Recipe, pool: Pool, name: str) -> Path:
    """Write `data/settings.yaml`, the output of the stage `settings`. Equal settings give equal bytes.

    `name` is the recipe as commands take it: a file in config/recipes, or RECIPE@POOL.
    """
    file = get_settings_file(workspace)
    note = "# Written from the recipe and its pool; the data stages of dvc.yaml depend on these values.\n"
    values = select_data_settings(recipe, pool) | {"recipe": name}
    write_text(file, note + yaml.safe_dump(values, sort_keys=True, allow_unicode=True))
    return file
