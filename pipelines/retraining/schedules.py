"""Schedules. Each is off by default, since it spends money, and its description has the estimated cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import dagster as dg

from assets.change import NoChampion, due
from assets.resources import RETRAINING, Podium
from ops.config import Setup, load_retraining
from ops.retraining import estimate
from ops.retraining.champion import champion
from ops.retraining.estimate import Estimate
from pipelines.lifecycle import unfinished
from pipelines.retraining.launch import ESTIMATE, MONTHLY_CHECK, estimated_probes, launch

PROBES, NIGHTLY = "probes", "nightly_evaluation"


class _Clock(NamedTuple):
    name: str
    job: str
    cron: str
    about: str
    price: Callable[[Setup], Estimate]


def _slice(setup: Setup) -> Estimate:
    return estimate.slice_of(setup, load_retraining(setup.workspace.config).slice_questions)


CLOCKS = (
    _Clock("nightly_evaluation", NIGHTLY, "0 3 * * *", "The champion on the next part of its questions", _slice),
    _Clock(
        "nightly_probes", PROBES, "0 4 * * *", "Ask every worker a few questions again: has it changed?",
        estimated_probes,
    ),
)  # fmt: skip
"""The schedules; times are UTC."""


def clock_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs that schedules start in addition to the lifecycle."""
    return [
        dg.define_asset_job(PROBES, ["worker_probes"], description="One round of probes of every worker"),
        dg.define_asset_job(NIGHTLY, ["champion_slice"], description="The champion on the questions of the night"),
    ]


def schedules() -> list[dg.ScheduleDefinition]:
    """Return all of `CLOCKS` for the champion's recipe (without a
    champion, for the resource's), and `monthly_check`.
    """
    return [*map(_schedule, CLOCKS), monthly_check()]


def monthly_check() -> dg.ScheduleDefinition:
    """What the sensor `pool_changed` does at once, once a month, for changes that may wait."""

    @dg.schedule(
        name=MONTHLY_CHECK,
        job_name=RETRAINING,
        cron_schedule="0 2 1 * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Retrain only what the champion's pool requires since the last run: edits, models that drifted. "
        "When nothing changed, no run starts; above retraining.budget_usd an alert asks a person",
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


def _schedule(clock: _Clock) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=clock.name,
        job_name=clock.job,
        cron_schedule=clock.cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=clock.about,
    )
    def schedule(podium: Podium) -> dg.RunRequest:
        known = champion(podium.load().workspace)
        here = podium.repeating(known.snapshot) if known else podium
        tags = {"podium/cause": "schedule", ESTIMATE: str(clock.price(here.load())), **here.launch_tags()}
        return dg.RunRequest(run_config=here.run_config(), tags=tags)

    return schedule
