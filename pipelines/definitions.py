"""Combine assets, checks, jobs, schedules, sensors and resources into Dagster's definitions."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

import assets as stages
from assets.placement import make_executor
from assets.resources import LogReporter, Reporter, RunResource, offer_recipes
from assets.studies import make_configured_assets
from pipelines.alerts import make_failure_sensor, make_success_sensor
from pipelines.lifecycle import make_jobs, make_retraining_job, make_study_jobs
from pipelines.release import make_release_jobs
from pipelines.retraining.schedules import make_scheduled_jobs, make_schedules
from pipelines.retraining.sensor import make_pool_alert_sensor, make_pool_sensor
from pipelines.startup import silence_tools

_STEP_S = 4 * 3600.0
"""A time limit above the duration of any step."""

OWNERS = {
    "data": "team:data",
    "workers": "team:data",
    "training": "team:training",
    "evaluation": "team:training",
    "experiments": "team:training",
    "release": "team:release",
    "retraining": "team:release",
}
"""Group of assets → owner."""


def make_definitions(
    podium: RunResource | None = None,
    reporter: Reporter | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """Return all Dagster definitions; arguments replace the resource or the logger, for example in tests."""
    silence_tools()
    chosen = podium or RunResource()
    storage = dg.FilesystemIOManager(base_dir=str(chosen.find_workspace().dagster_home / "storage"))
    resources = {
        "podium": offer_recipes(chosen).configure_at_launch(**chosen.model_dump(exclude={"recipe"}, exclude_none=True)),
        "reporter": reporter or LogReporter(),
        # The first request to stop finishes a step; the second ends this process and its trainer.
        "trainer": dg.PipesSubprocessClient(termination_timeout_seconds=_STEP_S),
        # Assets read each other's files, so nothing goes through it. Configured here: no launchpad offers it.
        "io_manager": dg.IOManagerDefinition(storage.create_io_manager),
    }
    studies = make_configured_assets(chosen.find_workspace().config)
    retraining = make_retraining_job()
    return dg.Definitions(
        assets=dg.map_asset_specs(_add_owner, [*dg.load_assets_from_package_module(stages), *studies]),
        asset_checks=dg.load_asset_checks_from_package_module(stages),
        jobs=[*make_jobs(), retraining, *make_study_jobs(studies), *make_scheduled_jobs(), *make_release_jobs(chosen)],
        schedules=make_schedules(),
        sensors=[
            make_pool_sensor(retraining), make_pool_alert_sensor(), make_failure_sensor(chosen),
            make_success_sensor(chosen),
        ],
        resources=resources,
        executor=make_executor(),
        loggers=loggers,
    )


def _add_owner(spec: dg.AssetSpec) -> dg.AssetSpec:
    return spec.replace_attributes(owners=[OWNERS[str(spec.group_name)]])


defs = make_definitions()
