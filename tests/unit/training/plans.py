"""Plans of a training whose files are not read, and setups for the folders of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.benchmarks.problem_files import write_problems
from ops.conductor.policy import PolicyCard
from ops.config import Recipe, Setup, load_pool, load_recipe
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.training.run.training_run import RunPlan

ROOT = Workspace.find().root
CONFIG = ROOT / "config"
QUICK, POOL = load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart")


def plan_of(recipe: Recipe, **fields: Any) -> RunPlan:
    """Return a plan of `recipe` with other `fields`."""
    values = {
        "root": ROOT, "recipe": recipe, "pool": load_pool(CONFIG, recipe.pool), "offered": ("a",),
        "base_policy": Path("base"), "problems": Path("mix"), "few_shots": Path("data"),
    }  # fmt: skip
    return RunPlan.model_validate(values | fields)


def quick_plan(**grpo: Any) -> RunPlan:
    """Return a plan of the quickstart's recipe with other settings of `grpo`."""
    return plan_of(Recipe.model_validate(QUICK.model_dump() | {"grpo": QUICK.grpo.model_dump() | grpo}))


def write_mix(workspace: Workspace, problems: Sequence[Problem], answers: Sequence[ResponseRow] = ()) -> None:
    """Write a mix, a subtask, and precached answers, which are what the cold start reads."""
    write_problems(workspace.data / "training_mix.jsonl", problems)
    (workspace.data / "cold_start").mkdir(exist_ok=True)
    (workspace.data / "cold_start" / "subtasks.yaml").write_text("- {say: Count., about: answer}\n", encoding="utf-8")
    if answers:
        write_responses(answers, workspace.data / "responses" / "all.parquet")


def trainable(root: Path, recipe: Recipe = QUICK) -> tuple[Setup, Path]:
    """Write what `write_run` reads into `root`: an empty mix, and the card of a policy, whose folder is returned."""
    setup, policy = Setup(Workspace(root), recipe, POOL), root / "runs" / "quickstart-0123" / "policy"
    write_mix(setup.workspace, [])
    policy.mkdir(parents=True)
    card = PolicyCard(
        recipe="q", pool=POOL, offered=POOL.names, prompting=recipe.prompting, max_completion_tokens=8
    )  # fmt: skip
    card.write(policy)
    return setup, policy
