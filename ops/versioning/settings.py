"""The recipe of the recorded data: params.yaml and `data/settings.yaml`.

`params.yaml` names the recipe for the commands of dvc.yaml. `data/settings.yaml` has the resolved settings of recipe
and pool that change data: the stages use its sections as parameters, so an edit elsewhere (a learning rate, a worker's
limits) leaves the data current, and writing out a default changes nothing. No stage depends on a file in `config/`: a
run reads its snapshot, and dvc.lock must not record a later edit as its input.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from ops.config import BenchmarkSource, Pool, Recipe, Snapshot
from ops.core.atomic import write_text
from ops.core.settings_files import parse_yaml, read_text
from ops.core.workspace import Workspace
from ops.versioning.dvc import commit, push
from ops.versioning.plain import has_dvc, unrecorded

SECTIONS = ("name", "seed", "pool", "benchmarks", "curation", "precaching", "replay")
"""The sections of a recipe that change data."""


def record(workspace: Workspace, snapshot: Snapshot, stage: str) -> str:
    """Record what `stage` has just written in a run of this snapshot; push it if the recipe says so.

    Returns its version: without DVC, a hash of its output. Raises `DataError`.
    """
    recipe = snapshot.recipe
    use_recipe(workspace, recipe, snapshot.recipe_file)
    write_settings(workspace, recipe, snapshot.pool)
    if not has_dvc(workspace):
        return unrecorded(workspace, stage)
    made = commit(workspace, "settings", stage)
    if recipe.versions.push:
        push(workspace, recipe.versions, "settings", stage)
    return made


def use_recipe(workspace: Workspace, recipe: Recipe, name: str) -> None:
    """Set the recipe file `name` and the seed of this run in params.yaml."""
    file = workspace.root / "params.yaml"
    wanted = {"recipe": name, "seed": recipe.seed}
    text = read_text(file) if os.path.lexists(file) else ""
    if parse_yaml(text, file) == wanted:
        return
    kept = [line for line in text.splitlines() if line.startswith("#")]
    write_text(file, "\n".join([*kept, *(f"{key}: {value}" for key, value in wanted.items())]) + "\n")


def data_settings(recipe: Recipe, pool: Pool) -> dict[str, Any]:
    """Return the settings that change a data stage's output, with defaults written out."""
    workers = {worker.name: worker.identity for worker in pool.workers}
    prices = {worker.name: worker.price.on().model_dump() if worker.price else None for worker in pool.workers}
    # The forecast of the training signal assumes groups of this size.
    grpo = {"rollouts_per_question": recipe.grpo.rollouts_per_question}
    stated = recipe.model_dump(mode="json", include={*SECTIONS})
    for source in stated["benchmarks"].values():
        if source["max_failing_gold_share"] == BenchmarkSource.model_fields["max_failing_gold_share"].default:
            del source["max_failing_gold_share"]  # newer than the recorded data, which stays current
    return stated | {"grpo": grpo, "workers": workers, "prices": prices}


def write_settings(workspace: Workspace, recipe: Recipe, pool: Pool) -> Path:
    """Write the settings to `data/settings.yaml`, the output of the stage `settings`; equal settings give equal
    bytes."""
    file = workspace.data / "settings.yaml"
    note = "# Written from the recipe and its pool; the data stages of dvc.yaml depend on these values.\n"
    write_text(file, note + yaml.safe_dump(data_settings(recipe, pool), sort_keys=True, allow_unicode=True))
    return file
