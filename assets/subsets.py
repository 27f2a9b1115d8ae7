"""`subsets`: a Conductor on parts of its pool, before and after the adaptive stage; made when asked for, by no job."""

import dagster as dg
from pydantic import Field

from assets import metadata, placement
from assets.adaptive_conductor import adaptive_conductor, adaptive_run
from assets.conductor import run_folder
from assets.experiments import GROUP, made, making
from assets.raw_problems import raw_problems
from assets.resources import Podium, Reporter
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from ops.evaluation.experiment import Findings
from ops.stages import subsets as stage
from ops.stages.making import Making, finished


class Sampling(dg.Config):
    """What is measured."""

    per_size: int = Field(3, ge=1, description="Parts of each size.")
    questions: int = Field(50, ge=1, description="Of each benchmark that is trained on.")
    unseen: str = Field("solver", description="A worker to keep from training, for one row; empty: no such row.")
    retrained: int = Field(1, ge=0, description="Parts of the middle size to train a Conductor of their own for.")

    def sampling(self) -> stage.Sampling:
        """As the stage has it."""
        return stage.Sampling(self.per_size, self.questions, self.unseen, self.retrained)


def measured(podium: Podium, config: Sampling, how: Making | None = None) -> Findings:
    """What the policies before and after the stage do on parts. Raises as `ops.stages.subsets.subsets` does."""
    setup, sampling = podium.load(), config.sampling()
    stage.check(setup, sampling)
    before, after = (finished(run, None) for run in (run_folder(podium), adaptive_run(podium)))
    return stage.subsets(setup, before, after, sampling, podium.snapshot().deepspeed, how)


@dg.asset(
    deps=[raw_problems, worker_pool, training_mix, adaptive_conductor],
    group_name=GROUP,
    pool=placement.GPU,
    op_tags=placement.on_gpu,
    kinds={"pytorch", "huggingface", "litellm"},
)
def subsets(
    context: dg.AssetExecutionContext,
    config: Sampling,
    podium: Podium,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Adaptive pool: the policies before and after that stage on parts of the pool, beside Conductors trained for some.

    Parts of every size, parts that have a name (a tag, the cheap half), parts that a worker has joined whom neither
    policy met.
    """
    with making(context, podium, reporter, trainer, "workers", "training", "evaluation") as how:
        facts = metadata.findings("right answers by part", measured(podium, config, how))
    return dg.MaterializeResult(metadata={**facts, **made(how, reporter, context)})
