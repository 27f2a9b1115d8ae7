"""The jobs `lifecycle` (every asset, in order, in one process), its parts, and `costs` (what another price changes).

A Dagster asset job holds assets of one partitions definition only, and a run carries one range
of partition keys; the life of the data is cut along benchmarks, along workers × benchmarks, and
not at all. So `lifecycle` is a job of one op for each stage. The op executes the stage's own asset job in the same
process, over all partitions of the stage at once, and its log has a line for each step and a link to that run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import uuid4

import dagster as dg

from assets import partitions, placement
from assets.resources import Podium
from assets.studies import asset_name
from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.evaluation.study import STUDIES
from pipelines.ending import signal_received
from pipelines.home import only_one, this_process
from pipelines.in_process import execute_in_process, link
from pipelines.lives import refuse_beside_a_team

LIFECYCLE_RUN = "podium/lifecycle_run"
"""Run tag: the run of `lifecycle` or `costs` that an asset run belongs to."""
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Run tags by which Dagster knows the range of partitions of a run."""


@dataclass(frozen=True)
class Stage:
    """One op of `lifecycle`: a run of these assets over all their partitions."""

    name: str
    assets: tuple[str, ...]
    along: Literal["nothing", "benchmark", "worker × benchmark"] = "nothing"
    description: str = ""


TRAINING = Stage(
    "training",
    (
        "worker_profiles",
        "training_mix",
        "signal_forecast",
        "base_policy",
        "conductor",
        "adaptive_conductor",
        "recursive_conductor",
    ),
    description="Choose the mix, cold-start a policy, train it with GRPO",
)
EVALUATION = Stage(
    "evaluation", ("baselines", "benchmark_scores"), "benchmark", description="Score baselines and Conductor"
)
STAGES = (
    Stage("problems", ("raw_problems",), "benchmark", "Load every benchmark's problems"),
    Stage("curation", ("shortlist", "worker_pool"), description="Choose candidates; read the pool"),
    Stage("precaching", ("worker_responses",), "worker × benchmark", "Ask every worker every candidate"),
    TRAINING,
    EVALUATION,
    Stage("release", ("leaderboard", "registered_model", "promotion", "report"),
          description="Compare, register, promote, report"),
)
STAGE_JOBS = {f"{stage.name}_stage": stage for stage in STAGES}
"""The asset job of each stage of `lifecycle`, which a person may start by itself; no job has the name of an op."""
ON_GPU = (TRAINING, EVALUATION)
"""Stages that train or write workflows."""


COSTS = (
    Stage("pool", ("worker_pool",), description="Read the pool's prices"),
    Stage("profiles", ("worker_profiles", "signal_forecast"), description="What the recorded responses cost now"),
    Stage("gate", ("leaderboard", "promotion"), description="Compare and judge at the new prices"),
)
"""Stages after a change of prices: recorded tokens are costed anew. No worker is called, nothing is trained."""


class Part(NamedTuple):
    """What a job does, in order, and in words."""

    stages: tuple[Stage, ...]
    description: str


JOBS = {
    "lifecycle": Part(STAGES, "Curate, precache, train, evaluate, register and promote a Conductor"),
    "train": Part((TRAINING,), "Train a Conductor on the problems and responses that are there"),
    "evaluate": Part(
        (EVALUATION, Stage("comparison", ("leaderboard",), description="Compare")),
        "Score the trained Conductor and its opponents; register and promote nothing",
    ),
    "costs": Part(COSTS, "Compute costs again after a change of prices; no worker is asked"),
}


def stage_jobs() -> "list[dg.UnresolvedAssetJobDefinition]":
    """The asset jobs of `STAGE_JOBS`."""
    return [dg.define_asset_job(name, list(stage.assets), description=f"{stage.description} (a stage of `lifecycle`)")
            for name, stage in STAGE_JOBS.items()]  # fmt: skip


def study_jobs(configured: Sequence[dg.AssetsDefinition]) -> "list[dg.UnresolvedAssetJobDefinition]":
    """The asset jobs of what `lifecycle` leaves out, which a person starts: the report and the studies."""
    about = "Every study that trains nothing, of the policy that was trained"
    jobs: dict[str, tuple[Sequence[str | dg.AssetKey], str]] = {
        "write_report": (["report"], "Write the report on what was measured; nothing is asked"),
        "study_policy": ([asset_name(name) for name in STUDIES], about),
    }
    for asset in configured:
        jobs[f"study_{asset.key.path[-1]}"] = ([asset.key], str(asset.specs_by_key[asset.key].description))
    return [dg.define_asset_job(name, list(chosen), description=about) for name, (chosen, about) in jobs.items()]


def jobs_over(assets: dg.Definitions) -> dict[str, dg.JobDefinition]:
    """The jobs, by name, over `assets`, which holds all assets of their stages with resources and loggers."""
    stages = {stage.name: stage for part in JOBS.values() for stage in part.stages}
    ops = {name: _stage_op(assets, stage) for name, stage in stages.items()}  # one for all jobs that have the stage
    return {
        name: _job(name, part, [ops[stage.name] for stage in part.stages]) for name, part in JOBS.items()
    }


def _job(name: str, part: Part, ops: Sequence[dg.OpDefinition]) -> dg.JobDefinition:
    pod = placement.on_gpu if any(stage in ON_GPU for stage in part.stages) else None

    @dg.job(name=name, description=part.description, executor_def=dg.in_process_executor, tags=pod)
    def job() -> None:
        done = None
        for op in ops:
            done = op() if done is None else op(done)

    return job


def _stage_op(assets: dg.Definitions, stage: Stage) -> dg.OpDefinition:
    @dg.op(
        name=stage.name,
        description=stage.description,
        pool=placement.GPU_WITHIN if stage in ON_GPU else None,
        ins={"before": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
    )
    def run_stage(context: dg.OpExecutionContext, podium: Podium) -> None:
        execute(context, assets, podium, stage)

    return run_stage


def execute(
    context: dg.OpExecutionContext,
    assets: dg.Definitions,
    podium: Podium,
    stage: Stage,
    *,
    benchmarks: Sequence[str] | None = None,
    workers: Sequence[str] | None = None,
) -> None:
    """Execute asset runs of the stage, as `podium` says, over all its partitions or over those of these benchmarks and
    workers alone. Raises what an asset raised, and `PodiumError` while another life goes on."""
    job, chosen = _job_of(assets, stage)
    tags = {
        **this_process(), **podium.launch_tags(), LIFECYCLE_RUN: context.run_id, "podium/stage": stage.name,
    }  # fmt: skip
    with only_one(podium.load().workspace):
        refuse_beside_a_team(context.instance)
        for span in _partition_tags(stage, podium, context.instance, benchmarks, workers):
            run_id = str(uuid4())
            link(context, f"{stage.name}: {', '.join(stage.assets)} in run {run_id[:8]}", run_id)
            execute_in_process(
                job,
                context.instance,
                run_id=run_id,
                run_config={**podium.run_config(), "loggers": {name: {} for name in assets.loggers or {}}},
                tags=tags | span,
                assets=chosen,
                follow=Steps(context.log.info),
            )
            if signal_received() is not None:  # Dagster forgets a signal that arrives while it closes the run
                raise dg.DagsterExecutionInterruptedError


def _job_of(assets: dg.Definitions, stage: Stage) -> tuple[dg.JobDefinition, list[dg.AssetKey]]:
    """The stage's own job, and which of its assets; all assets' job for a stage that has none."""
    for name, own in STAGE_JOBS.items():
        if own.assets == stage.assets:
            return assets.resolve_job_def(name), []
    return assets.resolve_implicit_global_asset_job_def(), [dg.AssetKey(name) for name in stage.assets]


class Steps:
    """Tells `say` how each step of a run ended: its duration, and what it asked of the workers."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked: dict[str, str] = {}

    def __call__(self, event: dg.DagsterEvent) -> None:
        """Take the next event of the run."""
        step = event.step_key or ""
        if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
            facts = event.step_materialization_data.materialization.metadata
            if (made := facts.get("calls_live")) is not None and (made.value or facts["calls_cached"].value):
                spent = facts["spent_usd"].value
                self._asked[step] = f", {made.value:,} calls, {facts['calls_cached'].value:,} from cache, ${spent:.4f}"
        elif event.event_type == dg.DagsterEventType.STEP_SUCCESS:
            seconds = event.step_success_data.duration_ms / 1000
            self._say(f"{step}: done in {seconds:.1f} s{self._asked.pop(step, '')}")
        elif event.event_type == dg.DagsterEventType.STEP_FAILURE:
            self._say(f"{step}: failed")


def _partition_tags(
    stage: Stage,
    podium: Podium,
    instance: dg.DagsterInstance,
    benchmarks: Sequence[str] | None,
    workers: Sequence[str] | None,
) -> Sequence[dict[str, str]]:
    if stage.along == "nothing":
        return [{}]
    named = podium.load().recipe.benchmarks if benchmarks is None else benchmarks
    if stage.along == "benchmark":
        spans = partitions.ranges(list(BENCHMARKS), list(named))
    else:
        known = instance.get_dynamic_partitions("worker")
        spans = [
            (
                dg.MultiPartitionKey({"worker": one, "benchmark": first}),
                dg.MultiPartitionKey({"worker": other, "benchmark": last}),
            )
            for one, other in partitions.ranges(known, known if workers is None else workers)
            for first, last in partitions.ranges(training_benchmarks(), training_benchmarks(named))
        ]
    return [{RANGE_START: first, RANGE_END: last} for first, last in spans]
