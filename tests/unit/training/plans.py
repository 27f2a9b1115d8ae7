"""Plans of a training whose files are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ops.config import Recipe, load_pool, load_recipe
from ops.core.workspace import Workspace
from ops.training.run.plan import RunPlan

ROOT = Workspace.find().root
CONFIG = ROOT / "config"


def plan_of(recipe: Recipe, **fields: Any) -> RunPlan:
    """Return a plan of `recipe` with other `fields`."""
    values = {
        "root": ROOT, "recipe": recipe, "pool": load_pool(CONFIG, recipe.pool), "offered": ("a",),
        "base_policy": Path("base"), "problems": Path("mix"), "few_shots": Path("data"),
    }  # fmt: skip
    return RunPlan.model_validate(values | fields)


def quick_plan(**grpo: Any) -> RunPlan:
    """Return a plan of the quickstart's recipe with other settings of `grpo`."""
    quick = load_recipe(CONFIG, "quickstart")
    return plan_of(Recipe.model_validate(quick.model_dump() | {"grpo": quick.grpo.model_dump() | grpo}))
