"""Schedules. Each is off by default, since it spends money, and its description has the estimated cost."""

from __future__ import annotations

import dagster as dg

from assets.pool_change import NoChampionError, find_pending_change
from assets.resources import RETRAINING_JOB, RunResource
from ops.retraining.champion import load_champion
from pipelines.lifecycle import describe_unfinished_run
from pipelines.retraining.launch import ESTIMATE_TAG, MONTHLY_CHECK, decide_launch, estimate_drift_round

DRIFT_JOB = "detect_drift"
"""The job that asks stored questions again."""


def make_scheduled_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs that schedules start in addition to the lifecycle."""
    about = "Ask the workers and the champion some stored questions again, to detect whether one of them has changed."
    return [dg.define_asset_job(DRIFT_JOB, ["drift"], description=about)]


def make_schedules() -> list[dg.ScheduleDefinition]:
    """Return the schedules; times are UTC."""
    return [make_nightly_drift(), make_monthly_check()]


def make_monthly_check() -> dg.ScheduleDefinition:
    """What the sensor `pool_changed` does at once, once a month, for changes that may wait."""

    @dg.schedule(
        name=MONTHLY_CHECK,
        job_name=RETRAINING_JOB,
        cron_schedule="0 2 1 * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Does the work that changes of the champion's pool since the last run require, once a month. If "
        "nothing has changed, no run starts. If it costs more than retraining.budget_usd, an alert asks a person.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, podium: RunResource) -> dg.RunRequest | dg.SkipReason:
        instance, workspace = context.instance, podium.find_workspace()
        if why := describe_unfinished_run(instance):
            return dg.SkipReason(f"{why}: the next check is in a month, `podium retrain` is one now")
        try:
            found = find_pending_change(podium, workspace, instance)
        except NoChampionError as error:
            return dg.SkipReason(str(error))
        if found.plan.is_empty:
            return dg.SkipReason(f"nothing changed in the pool {found.snapshot.pool.name}: the champion stays")
        made = decide_launch(workspace, instance, found, f"the schedule `{MONTHLY_CHECK}`")
        for note in made.observations:
            instance.report_runless_asset_event(note)
        return made.request or dg.SkipReason(made.reason)

    return schedule


def make_nightly_drift() -> dg.ScheduleDefinition:
    """Ask stored questions again every night, for the champion's recipe (without a champion, for the resource's)."""

    @dg.schedule(
        name="nightly_drift",
        job_name=DRIFT_JOB,
        cron_schedule="0 4 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Asks every worker and the champion some stored questions again, every night, to detect changes.",
    )
    def schedule(podium: RunResource) -> dg.RunRequest:
        known = load_champion(podium.load_setup().workspace)
        here = podium.for_new_run(known.snapshot) if known else podium
        tags = {ESTIMATE_TAG: str(estimate_drift_round(here.load_setup())), **here.make_launch_tags()}
        return dg.RunRequest(run_config=here.make_run_config(), tags=tags)

    return schedule
