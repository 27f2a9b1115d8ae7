"""`recursive_conductor`: the Conductor trained to continue from its own answers, if the recipe has a `recursive`
section."""

from pathlib import Path

import dagster as dg

from assets import placement
from assets.adaptive_conductor import adaptive_conductor, adaptive_run
from assets.conductor import has_stage, kept, run_folder, trained
from assets.resources import Podium, Reporter
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from ops.training.run.plan import write_run

NO_SECTION = "The recipe has no `recursive` section: the Conductor writes one workflow for a question."


def final_run(podium: Podium) -> Path:
    """Return the folder of this configuration's last training run, whose policy is scored and registered."""
    setup, before = podium.load(), adaptive_run(podium)
    if not has_stage(podium, "recursive"):
        return before
    return write_run(setup, before / "policy", podium.snapshot().deepspeed, recursive=setup.recipe.recursive)


def training_runs(podium: Podium) -> dict[str, Path]:
    """Return the asset of each training stage of this configuration → its run's folder, in order."""
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
    """Train the Conductor with GRPO in two rounds; without a `recursive` section, pass it on unchanged."""
    folder = final_run(podium)
    if not has_stage(podium, "recursive"):
        return kept(context, folder, NO_SECTION)
    return trained(context, podium, reporter, trainer, folder)
