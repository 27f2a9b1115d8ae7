"""A team's life: one backfill over every stage, whose runs Dagster queues, places, waits for and begins again.

`lifecycle` is one process; here each partition of precaching and evaluation is a run of its own, and the daemon, not
a process that may die, knows what is still to come. All of its runs work from one snapshot.
"""

import time
from collections.abc import Iterable
from uuid import uuid4

import dagster as dg

from assets import partitions
from assets.dagster_private import AssetGraphSubset, PartitionBackfill
from assets.resources import Podium
from ops.benchmarks.registry import training_benchmarks
from ops.config import Recipe, Setup
from ops.core.errors import PodiumError
from pipelines.alerts import bury_and_tell
from pipelines.home import only_one
from pipelines.lifecycle import JOBS, STAGES, Stage
from pipelines.lives import LIFE, WHOLE, refuse_beside_a_team, unfinished_runs
from pipelines.retraining.change import RETRAINING

IN_ONE_PROCESS = (*JOBS, RETRAINING)
"""Jobs that write what a team's life writes, from one process."""


def request_life(
    podium: Podium, instance: dg.DagsterInstance, assets: dg.Definitions, stages: Iterable[str] = ()
) -> str:
    """Ask the instance's daemon for a life, or some `stages` of it. Returns the backfill's id.

    Raises `ConfigError`, and `PodiumError` while another life, a team's or one process's, is unfinished.
    """
    setup = podium.load()
    with only_one(setup.workspace):  # no run may start between the check and the request
        bury_and_tell(setup.workspace, instance)
        refuse_beside_a_team(instance)
        if runs := unfinished_runs(instance, IN_ONE_PROCESS):
            named = f"{runs[0].job_name} run {runs[0].run_id[:8]}"
            raise PodiumError(f"{named} is not finished. Wait for its end, or cancel it under Runs")
        return _request(podium, setup, instance, assets, stages)


def _request(
    podium: Podium, setup: Setup, instance: dg.DagsterInstance, assets: dg.Definitions, stages: Iterable[str]
) -> str:
    partitions.sync_workers(instance, setup.pool.names)
    chosen = [stage for stage in STAGES if not stages or stage.name in set(stages)]
    named = uuid4().hex[:8]
    tags = podium.launch_tags() | {LIFE: named} | ({WHOLE: "true"} if len(chosen) == len(STAGES) else {})
    backfill = PartitionBackfill.from_asset_graph_subset(
        backfill_id=named,
        backfill_timestamp=time.time(),
        tags=tags,
        dynamic_partitions_store=instance,
        asset_graph_subset=_subset(chosen, assets, setup.recipe, instance),
        title=f"a life of {setup.recipe.name}"[:100],
        description=", ".join(stage.name for stage in chosen),
        run_config=podium.run_config(),
    )
    instance.add_backfill(backfill)
    return named


def team_job(assets: dg.Definitions) -> dg.JobDefinition:
    """The job `lifecycle_team`, which asks the daemon for a life over `assets` and is done."""

    @dg.op(description="Ask the daemon for a life: its runs are below Overview > Backfills")
    def request(context: dg.OpExecutionContext, podium: Podium) -> None:
        named = request_life(podium, context.instance, assets)
        context.log.info(f"/runs/b/{named} is the life of {podium.snapshot()}")

    @dg.job(
        name="lifecycle_team",
        description="The lifecycle for a team: partitions side by side on all of its machines (docs/deployment.md)",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        request()

    return job


def _subset(
    stages: Iterable[Stage], assets: dg.Definitions, recipe: Recipe, instance: dg.DagsterInstance
) -> AssetGraphSubset:
    """Every partition of the stages' assets that the recipe has."""
    graph = assets.resolve_asset_graph()
    whole: set[dg.AssetKey] = set()
    parts: dict[dg.AssetKey, dg.PartitionsSubset] = {}
    for stage in stages:
        for key in map(dg.AssetKey, stage.assets):
            cut = graph.get(key).partitions_def
            if cut is None:
                whole.add(key)
            else:
                parts[key] = cut.subset_with_partition_keys(_keys(stage, recipe, instance))
    return AssetGraphSubset(partitions_subsets_by_asset_key=parts, non_partitioned_asset_keys=whole)


def _keys(stage: Stage, recipe: Recipe, instance: dg.DagsterInstance) -> list[str]:
    if stage.along == "benchmark":
        return list(recipe.benchmarks)
    return [
        dg.MultiPartitionKey({"worker": worker, "benchmark": benchmark})
        for worker in instance.get_dynamic_partitions("worker")
        for benchmark in training_benchmarks(recipe.benchmarks)
    ]
