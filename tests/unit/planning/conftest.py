"""The paper's recipe with all its requirements; each test removes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ops.config import Pool, Recipe, Setup, Worker, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.machine import Gpu, Machine, parse_gpus
from ops.planning.recipe_plan import RecipePlan, make_plan

MACHINE = Machine(parse_gpus("2x80"), 512.0, 2000.0, has_bubblewrap=True, packages=frozenset({"deepspeed", "vllm"}))
NOTHING = Machine((), 1.0, 0.1, has_bubblewrap=False)
REVISION = "0" * 40
OFFLOAD = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
TODAY = date(2026, 6, 1)


@dataclass(frozen=True)
class Sound:
    """A ready setup on `machine`; `plan` changes parts of it."""

    setup: Setup
    machine: Machine = MACHINE
    deepspeed: Any = None
    today: date = TODAY

    def plan(self, **changes: Any) -> RecipePlan:
        """`machine`, `deepspeed`, `today`; `recipe` and `pool`: fields to change. Without arguments: the ready one."""
        fields = {name: changes[name] for name in ("machine", "deepspeed", "today") if name in changes}
        recipe = _changed(self.setup.recipe, changes.get("recipe", {}))
        pool = Pool.model_validate(dict(self.setup.pool) | changes.get("pool", {}))
        other = replace(self, setup=Setup(self.setup.workspace, recipe, pool), **fields)
        return make_plan(other.setup, other.machine, other.deepspeed, other.today)


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """Apply changes to sections field by field."""
    values = recipe.model_dump()
    for section, fields in changes.items():
        values[section] = values[section] | fields if isinstance(fields, dict) and values[section] else fields
    return Recipe.model_validate(values)


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sound:
    """The paper's recipe with its requirements met; no file of the project or of this machine is used."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "of a test")
    config = resources_folder() / "config"
    recipe, pool = load_recipe(config, "paper"), load_pool(config, "paper")
    alive = tuple(_alive(worker) for worker in pool.workers)
    for worker in alive:
        if worker.api_key_env:
            monkeypatch.setenv(worker.api_key_env, "of-a-test")
    workspace = Workspace(tmp_path)
    _link(tmp_path, config.parent)
    sources = {name: source.model_dump() | {"revision": REVISION} for name, source in recipe.benchmarks.items()}
    sound = _changed(recipe, {
        "benchmarks": sources,
        "grpo": {
            "vllm": True, "vllm_memory": 0.35, "vllm_max_model_length": None, "deepspeed": "zero3.json",
            "processes": 2, "micro_batch": 4,
        },
        "budget": {"run_usd": 1e6},
        "evaluation": {"repeats": 1},
    })  # fmt: skip
    return Sound(Setup(workspace, sound, Pool(name=pool.name, workers=alive)), deepspeed=OFFLOAD)


def _alive(worker: Worker) -> Worker:
    """Remove the retirement date of a model that LiteLLM's map does not list as ended."""
    ended = worker.model.startswith("anthropic/")
    known = {"model": "deepinfra/Qwen/Qwen3-32B", "thinking_budget": None} if ended else {}
    return worker.model_copy(update={"retired": None, **known})


def _link(root: Path, source: Path) -> None:
    """Link the tables that a prompt needs."""
    (root / "data").mkdir()
    (root / "data" / "few_shots").symlink_to(source / "data" / "few_shots")
    (root / "config").mkdir()


@pytest.fixture
def smaller() -> Callable[[int, float], Machine]:
    """Return the machine with other GPUs: number, GiB of each."""
    return lambda count, gib: replace(MACHINE, gpus=(Gpu("a GPU", gib),) * count)
