"""What starts a retraining: the clock, and a change of the pool. Both start stopped: retraining spends money.

What belongs here: when to launch the `lifecycle` job. What does not: how little of it suffices
(`ops.drift` says what a change requires; the content keys of each stage skip what is there already).
"""

import dagster as dg

from assets.resources import Podium
from ops import drift
from ops.config import Pool


def nightly(lifecycle: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Every night at 02:00 (UTC)."""
    return dg.ScheduleDefinition(
        name="nightly_retraining",
        job=lifecycle,
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Run the lifecycle every night; whatever has not changed is taken from its cache",
        tags={"podium/cause": "schedule"},
    )


def pool_changed(lifecycle: dg.JobDefinition) -> dg.SensorDefinition:
    """Launch the lifecycle when the pool's file differs from the pool that was last materialized."""

    @dg.sensor(
        name="pool_changed",
        job=lifecycle,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Retrain when the pool's fingerprint has changed",
    )
    def sensor(context: dg.SensorEvaluationContext, podium: Podium) -> dg.RunRequest | dg.SkipReason:
        last = context.instance.get_latest_materialization_event(dg.AssetKey("worker_pool"))
        if last is None or last.asset_materialization is None:
            return dg.SkipReason("worker_pool was never materialized: run the lifecycle once")
        before = Pool.model_validate(last.asset_materialization.metadata["pool"].value)
        now = podium.load().pool
        needed = drift.plan(drift.difference(before, now))
        if needed.is_empty:
            return dg.SkipReason(f"the pool is unchanged ({now.fingerprint})")
        return dg.RunRequest(
            # Once for each new fingerprint, and again if the pool comes back to it later.
            run_key=f"{last.run_id}:{now.fingerprint}",
            run_config=podium.run_config(),
            tags={"podium/cause": "pool changed", "podium/reasons": "; ".join(needed.reasons)},
        )

    return sensor
