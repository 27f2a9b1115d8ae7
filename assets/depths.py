"""`depths`: what so many rounds add before and after the recursive stage; made when a person asks, by no job."""

import dagster as dg
from pydantic import Field

from assets import metadata, placement
from assets.adaptive_conductor import adaptive_run
from assets.experiments import GROUP, made, making
from assets.raw_problems import raw_problems
from assets.recursive_conductor import final_run, recursive_conductor
from assets.resources import Podium, Reporter
from assets.worker_pool import worker_pool
from ops.evaluation.experiment import Findings
from ops.stages import depths as stage
from ops.stages.making import Making, finished


class Extent(dg.Config):
    """How much is measured."""

    deepest: int = Field(stage.Extent().deepest, ge=0, description="Rounds after the first.")
    questions: int | None = Field(None, ge=1, description="Of each benchmark; all of them where none is given.")


def measured(podium: Podium, extent: Extent, how: Making | None = None) -> Findings:
    """What the policies before and after the stage do. Raises as `ops.stages.depths.depths` does."""
    setup = podium.load()
    stage.check(setup)
    runs = {"before": adaptive_run(podium), "after": final_run(podium)}
    policies = {name: finished(run, None) / "policy" for name, run in runs.items()}
    return stage.depths(setup, policies, stage.Extent(extent.deepest, extent.questions), how)


@dg.asset(
    deps=[raw_problems, worker_pool, recursive_conductor],
    group_name=GROUP,
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"huggingface", "litellm"},
)
def depths(
    context: dg.AssetExecutionContext,
    config: Extent,
    podium: Podium,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Recursion depth: what so many rounds after the first add, before and after the recursive stage."""
    with making(context, podium, reporter, trainer, "workers", "evaluation") as how:
        facts = metadata.findings("right answers by depth", measured(podium, config, how))
    return dg.MaterializeResult(metadata={**facts, **made(how, reporter, context)})
