"""`adaptive_conductor`: the Conductor trained further on random worker subsets, if the recipe has an `adaptive`
section."""

from pathlib import Path

import dagster as dg

from assets import placement
from assets.conductor import (
    conductor,
    explain_no_training,
    get_run_folder,
    has_training_stage,
    materialize_training,
    materialize_unchanged,
)
from assets.resources import Reporter, RunResource
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import write_run_plan

NO_ADAPTIVE_STAGE = "No `adaptive` section, or a champion is fine-tuned: the Conductor stays as `conductor` made it."


def get_adaptive_run_folder(podium: RunResource) -> Path:
    """Return the folder of this stage's run; without an `adaptive` section, that of the previous stage."""
    setup, before = podium.load_setup(), get_run_folder(podium)
    if not has_training_stage(podium, "adaptive"):
        return before
    return write_run_plan(setup, before / "policy", podium.get_snapshot().deepspeed, setup.recipe.adaptive)


@dg.asset(
    deps=[conductor],
    group_name="training",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"pytorch", "huggingface", "litellm"},
)
def adaptive_conductor(
    context: dg.AssetExecutionContext,
    podium: RunResource,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Train the Conductor further with GRPO on random subsets of its pool. Without an `adaptive` section in the recipe,
    it stays unchanged."""
    if why_not := explain_no_training(podium):
        return materialize_unchanged(context, base_policy_folder(podium.load_setup()), why_not)
    folder = get_adaptive_run_folder(podium)
    if not has_training_stage(podium, "adaptive"):
        return materialize_unchanged(context, folder, NO_ADAPTIVE_STAGE)
    return materialize_training(context, podium, reporter, trainer, folder)
