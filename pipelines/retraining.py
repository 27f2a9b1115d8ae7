"""What starts a retraining: the clock, and a change of the pool. Both start stopped: retraining spends money."""

import dagster as dg

from assets.resources import Podium
from ops.release.drift import plan
from ops.workers.pool import difference
from pipelines.lifecycle import LIFECYCLE_RUN

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def nightly(lifecycle: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Every night at 02:00 (UTC)."""

    @dg.schedule(
        name="nightly_retraining",
        job=lifecycle,
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Run the lifecycle every night; whatever has not changed is taken from its cache",
    )
    def schedule(podium: Podium) -> dg.RunRequest:
        return dg.RunRequest(run_config=podium.run_config(), tags={"podium/cause": "schedule", **podium.launch_tags()})

    return schedule


def pool_changed(lifecycle: dg.JobDefinition, costs: dg.JobDefinition) -> dg.SensorDefinition:
    """Act when the pool's file differs from what the last run read: prices change costs only.

    The recipe and the seed are that run's.
    """

    @dg.sensor(
        name="pool_changed",
        jobs=[lifecycle, costs],
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Retrain when what the pool answers has changed; compute costs again when only prices have",
    )
    def sensor(context: dg.SensorEvaluationContext, podium: Podium) -> dg.RunRequest | dg.SkipReason:
        # A run works from its own snapshot to its end: what it leaves is then compared with the file.
        if runs := _unfinished(context.instance, lifecycle.name, costs.name):
            return dg.SkipReason(f"{runs[0].job_name} run {runs[0].run_id[:8]} is not finished: looking again after it")
        last = context.instance.get_latest_materialization_event(dg.AssetKey("worker_pool"))
        if last is None or last.asset_materialization is None:
            return dg.SkipReason("worker_pool was never materialized: run the lifecycle once")
        snapshot = podium.asked_in(context.instance, last.run_id)
        if snapshot is None:
            return dg.SkipReason("worker_pool was materialized by an older Podium: materialize it again")
        again = podium.repeating(snapshot)
        now = again.load().pool
        needed = plan(difference(snapshot.pool, now))
        if needed.is_empty:
            return dg.SkipReason(f"the pool is unchanged (answers {now.answers_key}, prices {now.prices_key})")
        job = costs if needed.costs_only else lifecycle
        return dg.RunRequest(
            # Once for each new pool, and again if it comes back to it later.
            run_key=f"{last.run_id}:{now.answers_key}:{now.prices_key}",
            job_name=job.name,
            run_config=again.run_config(),
            tags={
                "podium/cause": "pool changed",
                "podium/reasons": "; ".join(needed.reasons),
                **again.launch_tags(),
            },
        )

    return sensor


def _unfinished(instance: dg.DagsterInstance, *jobs: str) -> list[dg.DagsterRun]:
    """Runs of these jobs that have not ended; their stages' own runs are not counted."""
    runs = [run for name in jobs for run in instance.get_runs(dg.RunsFilter(job_name=name, statuses=UNFINISHED))]
    return [run for run in runs if LIFECYCLE_RUN not in run.tags]
