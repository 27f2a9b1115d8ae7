"""`adaptive_conductor`: the Conductor trained further on random worker subsets, if the recipe has an `adaptive`
section."""

from pathlib import Path

import dagster as dg

from assets import placement
from assets.conductor import conductor, has_stage, kept, not_trained, run_folder, trained
from assets.resources import Podium, Reporter
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import write_run_plan

NO_SECTION = "No `adaptive` section, or a champion is fine-tuned: the Conductor stays as `conductor` made it."


def adaptive_run(podium: Podium) -> Path:
    """Return the folder of this stage's run; without an `adaptive` section, that of the previous stage."""
    setup, before = podium.load(), run_folder(podium)
    if not has_stage(podium, "adaptive"):
        return before
    return write_run_plan(setup, before / "policy", podium.snapshot().deepspeed, setup.recipe.adaptive)


@dg.asset(
    deps=[worker_pool, training_mix, conductor],
    group_name="training",
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"pytorch", "huggingface", "litellm"},
)
def adaptive_conductor(
    context: dg.AssetExecutionContext,
    podium: Podium,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Train the Conductor further with GRPO on random subsets of its pool. Without an `adaptive` section in the recipe,
    it stays unchanged."""
    if why_not := not_trained(podium):
        return kept(context, base_policy_folder(podium.load()), why_not)
    folder = adaptive_run(podium)
    if not has_stage(podium, "adaptive"):
        return kept(context, folder, NO_SECTION)
    return trained(context, podium, reporter, trainer, folder)
