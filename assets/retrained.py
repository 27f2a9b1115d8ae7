"""One asset a change of config/experiments.yaml, which trains the recipe anew: made when a person asks, by no job."""

from pathlib import Path

import dagster as dg

from assets import metadata, placement
from assets.base_policy import base_policy
from assets.benchmark_scores import benchmark_scores
from assets.experiments import GROUP, made, making
from assets.raw_problems import raw_problems
from assets.resources import Podium, Reporter
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from ops.config import Setup
from ops.config.ablations import EXPERIMENTS, Change, experiments_now
from ops.core.errors import PodiumError
from ops.evaluation.report import reward_curve
from ops.stages.ablations import beside_the_recipe, with_change
from ops.stages.making import trained
from ops.training.run.plan import read_curve

PREFIX = "retrained"
"""Before the names of the assets: a file that people edit names them, and no name of it is another asset's."""
UNREADABLE = "experiments_yaml"
"""The asset that stands for all of them where the file cannot be read."""

READ = (raw_problems, worker_pool, training_mix, base_policy, benchmark_scores)
"""What each of them reads: the training's data, and the scores of the recipe as it is."""


def retrained_experiments(config: Path) -> list[dg.AssetsDefinition]:
    """An asset for each change in the file; where it cannot be read, one that says why and cannot be made."""
    if not (config / EXPERIMENTS).exists():
        return []
    known = experiments_now(config)
    if isinstance(known, str):
        return [_unreadable(known)]
    return [_asset_of(name, change, known.recipe) for name, change in known.changes.items()]


def asset_name(experiment: str) -> str:
    """The experiment's asset, as its key is written."""
    return f"{PREFIX}/{experiment}"


def setups(podium: Podium, name: str) -> tuple[Setup, Setup]:
    """The recipe of this run as it is, and with the change of that name, as the run's snapshot has them.

    Raises `PodiumError` where the file could not be read, `ConfigError` where it has no such change to this recipe.
    """
    setup, snapshot = podium.load(), podium.snapshot()
    known, file = snapshot.readable_experiments(), setup.workspace.config / EXPERIMENTS
    change, trainings = known.change(name, snapshot.recipe_file, file), 1 + len(known.changes)
    return with_change(setup, Change(), file, trainings), with_change(setup, change, file, trainings)


def _asset_of(name: str, change: Change, recipe: str) -> dg.AssetsDefinition:
    title = name.replace("_", " ")
    said = ", ".join(
        f"{section}.{field}: {value}" for section, fields in change.items() for field, value in fields.items()
    )

    @dg.asset(
        name=name,
        key_prefix=PREFIX,
        deps=READ,
        group_name=GROUP,
        pool=placement.GPU,
        op_tags=placement.on_gpu,
        kinds={"pytorch", "huggingface", "litellm"},
        description=f"{title.capitalize()}: recipe {recipe} trained anew on the same data with {said}.",
    )
    def experiment(
        context: dg.AssetExecutionContext,
        podium: Podium,
        reporter: dg.ResourceParam[Reporter],
        trainer: dg.PipesSubprocessClient,
    ) -> dg.MaterializeResult:
        as_it_is, other = setups(podium, name)
        deepspeed = podium.snapshot().deepspeed
        with making(context, podium, reporter, trainer, "workers", "training", "evaluation", setup=other) as how:
            found = beside_the_recipe(as_it_is, other, name, deepspeed, how)
        run = trained(other, deepspeed, None)
        rewarded = [row for row in read_curve(run) if row["reward"] is not None]
        curve = reward_curve([row["step"] for row in rewarded], [row["reward"] for row in rewarded])
        return dg.MaterializeResult(
            data_version=dg.DataVersion(run.name),
            metadata={
                **metadata.findings(title, found),
                "reward_curve": metadata.picture("mean reward by step", curve),
                "run": dg.MetadataValue.path(run),
                **made(how, reporter, context),
            },
        )

    return experiment


def _unreadable(why: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=UNREADABLE,
        key_prefix=PREFIX,
        deps=READ,
        group_name=GROUP,
        description=f"The experiments that train anew cannot be read. {why}",
    )
    def experiments_that_cannot_be_read(podium: Podium) -> None:
        podium.snapshot().readable_experiments()
        raise PodiumError(f"config/{EXPERIMENTS} can be read now: reload the code location, and its assets are there")

    return experiments_that_cannot_be_read
