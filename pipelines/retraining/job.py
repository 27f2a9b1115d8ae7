"""The job `retraining`: execute the plan of a pool's change.

The ops are always the same; each does its part of the plan, or logs that there is nothing to do. A retry continues
after a crash: answers, scores and checkpoints are kept.
"""

import dagster as dg

from assets.placement import GPU_WITHIN, on_gpu
from assets.recursive_conductor import final_run
from assets.resources import Podium
from ops.config import Snapshot
from ops.retraining.standing import decided, required, unanswered, unscored
from pipelines.lifecycle import Stage, execute
from pipelines.retraining.change import CHANGE, RETRAINING, due

POOL = Stage("pool", ("worker_pool",))
COLUMN = Stage("column", ("worker_responses",), "worker × benchmark")
PROFILES = Stage("profiles", ("worker_profiles",))
ALONE = Stage("alone", ("baselines",), "benchmark")
SCORES = Stage("scores", ("benchmark_scores",), "benchmark")
STANDING = Stage("standing", ("leaderboard", "champion_standing"))
FINE_TUNING = Stage("fine_tuning", ("training_mix", "conductor"))
RELEASE = Stage("release", ("leaderboard", "registered_model", "promotion"))


def retraining_job(assets: dg.Definitions) -> dg.JobDefinition:
    """The job over `assets`, which holds all assets with resources and loggers."""

    @dg.op(description="What changed in the champion's pool, and what that requires", out=dg.Out(str))
    def change(context: dg.OpExecutionContext, podium: Podium) -> str:
        snapshot = podium.snapshot()
        if snapshot.change is None:  # started by hand, for whatever recipe: it is about the champion
            found = due(podium, podium.load().workspace, context.instance)
            snapshot = found.snapshot
            tags = {**found.podium.launch_tags(), CHANGE: found.key}
            context.instance.add_run_tags(context.run_id, tags)
        context.log.info(f"plan: {required(snapshot)}")
        return _keep(podium, snapshot)

    @dg.op(description="The pool's new prices and the new columns of answers", out=dg.Out(str))
    def workers(context: dg.OpExecutionContext, podium: Podium, key: str) -> str:
        here, snapshot = _from(podium, key)
        plan = required(snapshot)
        if plan.is_empty:
            context.log.info("nothing to do")
            return key
        execute(context, assets, here, POOL)
        if plan.precache:
            execute(context, assets, here, COLUMN, workers=plan.precache)
        execute(context, assets, here, PROFILES)
        return key

    @dg.op(description="The champion on the pool as it is now, judged by the gate", out=dg.Out(str), pool=GPU_WITHIN)
    def standing(context: dg.OpExecutionContext, podium: Podium, key: str) -> str:
        here, snapshot = _from(podium, key, conductor="champion")
        if required(snapshot).is_empty:
            return key
        _score(context, here)
        execute(context, assets, here, STANDING)
        return _keep(podium, snapshot)

    @dg.op(description="Train on from the champion, where that was decided", out=dg.Out(str), pool=GPU_WITHIN)
    def fine_tuning(context: dg.OpExecutionContext, podium: Podium, key: str) -> str:
        here, snapshot = _from(podium, key, conductor="fine-tuned")
        if required(snapshot).is_empty:
            return ""
        made = decided(here.load().workspace, key)
        context.log.info(f"{'fine-tuning' if made.fine_tune else 'no training'}: {made.why}")
        if not made.fine_tune:
            return ""
        execute(context, assets, here, FINE_TUNING)
        return _keep(podium, snapshot)

    @dg.op(description="Score, register and judge what was fine-tuned", out=dg.Out(dg.Nothing), pool=GPU_WITHIN)
    def challenger(context: dg.OpExecutionContext, podium: Podium, key: str) -> None:
        if not key:
            context.log.info("no challenger: the champion stays as it is")
            return
        here, _ = _from(podium, key)
        _score(context, here)
        execute(context, assets, here, RELEASE)

    def _score(context: dg.OpExecutionContext, here: Podium) -> None:
        setup = here.load()
        if benchmarks := unanswered(setup):
            execute(context, assets, here, ALONE, benchmarks=benchmarks)
        if benchmarks := unscored(setup, final_run(here) / "policy"):
            execute(context, assets, here, SCORES, benchmarks=benchmarks)

    @dg.job(
        name=RETRAINING,
        description="Execute what a change of the champion's pool requires: precache, evaluate, fine-tune where needed",
        executor_def=dg.in_process_executor,
        tags=on_gpu,
    )
    def job() -> None:
        challenger(fine_tuning(standing(workers(change()))))

    return job


def _keep(podium: Podium, snapshot: Snapshot) -> str:
    """Store the snapshot, which the next op works from; its key."""
    snapshot.write(podium.load().workspace.snapshots)
    return snapshot.key


def _from(podium: Podium, key: str, **update: str) -> tuple[Podium, Snapshot]:
    """The resource of a kept snapshot, with what differs in this op."""
    snapshot = Snapshot.read(podium.load().workspace.snapshots, key).model_copy(update=update)
    return podium.repeating(snapshot).of(snapshot), snapshot
