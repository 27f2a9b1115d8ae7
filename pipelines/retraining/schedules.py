"""What the clock starts. All of it starts stopped, because all of it spends money, and says beforehand how much."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import dagster as dg

from assets.placement import TEAM
from assets.resources import Podium
from ops.config import Setup, load_retraining
from ops.precaching.opening import open_client
from ops.retraining import estimate
from ops.retraining.champion import champion
from ops.retraining.estimate import Estimate
from pipelines.retraining.sensor import ESTIMATE

PROBES, NIGHTLY = "probes", "nightly_evaluation"


class _Clock(NamedTuple):
    name: str
    job: str
    cron: str
    about: str
    price: Callable[[Setup], Estimate]


def _probing(setup: Setup) -> Estimate:
    client = open_client(setup, "probing")
    try:
        return estimate.probing(setup, client)
    finally:
        client.cache.close()
        client.ledger.close()


def _slice(setup: Setup) -> Estimate:
    return estimate.slice_of(setup, load_retraining(setup.workspace.config).slice_questions)


CLOCKS = (
    _Clock("nightly_evaluation", NIGHTLY, "0 3 * * *", "The champion on the next part of its questions", _slice),
    _Clock("nightly_probes", PROBES, "0 4 * * *", "Ask every worker a few questions again: has it changed?", _probing),
    _Clock("monthly_retraining", "lifecycle", "0 2 1 * *", "The whole lifecycle; what has not changed is cached",
           estimate.life),
)  # fmt: skip
"""Times are UTC."""


def clock_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """The jobs that schedules start beside the lifecycle."""
    return [
        dg.define_asset_job(PROBES, ["worker_probes"], description="One round of probes of every worker"),
        dg.define_asset_job(NIGHTLY, ["champion_slice"], description="The champion on the questions of the night"),
    ]


def schedules() -> list[dg.ScheduleDefinition]:
    """All of `CLOCKS`, for the champion's recipe; where there is no champion yet, for the recipe of the resource. A
    team's life is one on all of its machines."""
    elsewhere = {"lifecycle": "lifecycle_team"} if os.environ.get(TEAM) else {}
    return [_schedule(clock._replace(job=elsewhere.get(clock.job, clock.job))) for clock in CLOCKS]


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
