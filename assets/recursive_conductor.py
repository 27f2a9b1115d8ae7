"""`recursive_conductor`: the Conductor trained to continue from its own answers, if the recipe has a `recursive`
section."""

from pathlib import Path

import dagster as dg

from assets import placement
from assets.adaptive_conductor import adaptive_conductor, adaptive_run
from assets.conductor import has_stage, kept, not_trained, run_folder, trained
from assets.resources import Podium, Reporter
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import write_run_plan

NO_SECTION = "No `recursive` section, or a champion is fine-tuned: the Conductor stays as it was made."


def final_run(podium: Podium) -> Path:
    """Return the folder of the last training run of this configuration, which trains a policy."""
    setup, before = podium.load(), adaptive_run(podium)
    if not has_stage(podium, "recursive"):
        return before
    return write_run_plan(setup, before / "policy", podium.snapshot().deepspeed, recursive=setup.recipe.recursive)


def final_policy(podium: Podium) -> Path:
    """Return the folder of the policy that is scored and registered:
    the last training run's, or the untrained policy.
    """
    if not not_trained(podium):
        return final_run(podium) / "policy"
    return base_policy_folder(podium.load())


def training_runs(podium: Podium) -> dict[str, Path]:
    """Return the asset of each training stage of this configuration →
    its run's folder, in order; empty for an untrained policy.
    """
    if not_trained(podium):
        return {}
    runs = {"conductor": run_folder(podium)}
    if has_stage(podium, "adaptive"):
        runs["adaptive_conductor"] = adaptive_run(podium)
    if has_stage(podium, "recursive"):
        runs["recursive_conductor"] = final_run(podium)
    return runs


@dg.asset(
    deps=[worker_pool, training_mix, adaptive_conductor],
    group_name="training",
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"pytorch", "huggingface", "litellm"},
)
def recursive_conductor(
    context: dg.AssetExecutionContext,
    podium: Podium,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Train the Conductor further with GRPO in two rounds. Without a `recursive` section in the recipe, it stays
    unchanged."""
    if why_not := not_trained(podium):
        return kept(context, final_policy(podium), why_not)
    folder = final_run(podium)
    if not has_stage(podium, "recursive"):
        return kept(context, folder, NO_SECTION)
    return trained(context, podium, reporter, trainer, folder)
