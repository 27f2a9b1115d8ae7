"""Schedules. Each is off by default, since it spends money, and its description has the estimated cost."""

from __future__ import annotations

import dagster as dg

from assets.change import NoChampion, due
from assets.resources import RETRAINING, Podium
from ops.retraining.champion import champion
from pipelines.lifecycle import unfinished
from pipelines.retraining.launch import ESTIMATE, MONTHLY_CHECK, estimated_drift, launch

DRIFT = "detect_drift"
"""The job that asks stored questions again."""


def clock_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs that schedules start in addition to the lifecycle."""
    about = "Ask the workers and the champion some stored questions again, to detect whether one of them has changed."
    return [dg.define_asset_job(DRIFT, ["drift"], description=about)]


def schedules() -> list[dg.ScheduleDefinition]:
    """Return the schedules; times are UTC."""
    return [nightly_drift(), monthly_check()]


def monthly_check() -> dg.ScheduleDefinition:
    """What the sensor `pool_changed` does at once, once a month, for changes that may wait."""

    @dg.schedule(
        name=MONTHLY_CHECK,
        job_name=RETRAINING,
        cron_schedule="0 2 1 * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Does the work that changes of the champion's pool since the last run require, once a month. If "
        "nothing has changed, no run starts. If it costs more than retraining.budget_usd, an alert asks a person.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, podium: Podium) -> dg.RunRequest | dg.SkipReason:
        instance, workspace = context.instance, podium.workspace()
        if why := unfinished(instance):
            return dg.SkipReason(f"{why}: the next check is in a month, `podium retrain` is one now")
        try:
            found = due(podium, workspace, instance)
        except NoChampion as error:
            return dg.SkipReason(str(error))
        if found.plan.is_empty:
            return dg.SkipReason(f"nothing changed in the pool {found.snapshot.pool.name}: the champion stays")
        made = launch(workspace, instance, found, "schedule")
        for note in made.notes:
            instance.report_runless_asset_event(note)
        return made.request or dg.SkipReason(made.why)

    return schedule


def nightly_drift() -> dg.ScheduleDefinition:
    """Ask stored questions again every night, for the champion's recipe (without a champion, for the resource's)."""

    @dg.schedule(
        name="nightly_drift",
        job_name=DRIFT,
        cron_schedule="0 4 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Asks every worker and the champion some stored questions again, every night, to detect changes.",
    )
    def schedule(podium: Podium) -> dg.RunRequest:
        known = champion(podium.load().workspace)
        here = podium.repeating(known.snapshot) if known else podium
        tags = {"podium/cause": "schedule", ESTIMATE: str(estimated_drift(here.load())), **here.launch_tags()}
        return dg.RunRequest(run_config=here.run_config(), tags=tags)

    return schedule
