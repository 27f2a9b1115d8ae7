"""`recursive_conductor`: the Conductor trained to continue from its own answers, if the recipe has a `recursive`
section."""

from pathlib import Path

import dagster as dg

from assets import placement
from assets.adaptive_conductor import adaptive_conductor, get_adaptive_run_folder
from assets.conductor import (
    explain_no_training,
    get_run_folder,
    has_training_stage,
    materialize_training,
    materialize_unchanged,
)
from assets.resources import Reporter, RunResource
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import write_run_plan

NO_RECURSIVE_STAGE = "No `recursive` section, or a champion is fine-tuned: the Conductor stays as it was made."


def get_final_run_folder(podium: RunResource) -> Path:
    """Return the folder of the last training run of this configuration, which trains a policy."""
    setup, before = podium.load_setup(), get_adaptive_run_folder(podium)
    if not has_training_stage(podium, "recursive"):
        return before
    return write_run_plan(setup, before / "policy", podium.get_snapshot().deepspeed, recursive=setup.recipe.recursive)


def get_final_policy_folder(podium: RunResource) -> Path:
    """Return the folder of the policy that is scored and registered:
    the last training run's, or the untrained policy.
    """
    if not explain_no_training(podium):
        return get_final_run_folder(podium) / "policy"
    return base_policy_folder(podium.load_setup())


def list_training_runs(podium: RunResource) -> dict[str, Path]:
    """Return the asset of each training stage of this configuration →
    its run's folder, in order; empty for an untrained policy.
    """
    if explain_no_training(podium):
        return {}
    runs = {"conductor": get_run_folder(podium)}
    if has_training_stage(podium, "adaptive"):
        runs["adaptive_conductor"] = get_adaptive_run_folder(podium)
    if has_training_stage(podium, "recursive"):
        runs["recursive_conductor"] = get_final_run_folder(podium)
    return runs


@dg.asset(
    deps=[adaptive_conductor],
    group_name="training",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"pytorch", "huggingface", "litellm"},
)
def recursive_conductor(
    context: dg.AssetExecutionContext,
    podium: RunResource,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Train the Conductor further with GRPO in two rounds. Without a `recursive` section in the recipe, it stays
    unchanged."""
    if why_not := explain_no_training(podium):
        return materialize_unchanged(context, get_final_policy_folder(podium), why_not)
    folder = get_final_run_folder(podium)
    if not has_training_stage(podium, "recursive"):
        return materialize_unchanged(context, folder, NO_RECURSIVE_STAGE)
    return materialize_training(context, podium, reporter, trainer, folder)
