"""Combine assets, checks, jobs, schedules, sensors and resources into Dagster's definitions."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

import assets as stages
from assets.placement import executor
from assets.resources import LogReporter, Podium, Reporter, choosing
from assets.studies import configured_studies
from pipelines.alerts import alert_on_failure
from pipelines.lifecycle import jobs, retraining_job, study_jobs
from pipelines.quiet import quiet
from pipelines.release import release_jobs
from pipelines.retraining.schedules import clock_jobs, schedules
from pipelines.retraining.sensor import alert_on_pool, pool_changed

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


def definitions(
    podium: Podium | None = None,
    reporter: Reporter | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """Return all Dagster definitions; arguments replace the resource or the logger, for example in tests."""
    quiet()
    chosen = podium or Podium()
    storage = dg.FilesystemIOManager(base_dir=str(chosen.workspace().dagster_home / "storage"))
    resources = {
        "podium": choosing(chosen).configure_at_launch(**chosen.model_dump(exclude={"recipe"}, exclude_none=True)),
        "reporter": reporter or LogReporter(),
        # The first request to stop finishes a step; the second ends this process and its trainer.
        "trainer": dg.PipesSubprocessClient(termination_timeout_seconds=_STEP_S),
        # Assets read each other's files, so nothing goes through it. Configured here: no launchpad offers it.
        "io_manager": dg.IOManagerDefinition(storage.create_io_manager),
    }
    studies = configured_studies(chosen.workspace().config)
    retraining = retraining_job()
    return dg.Definitions(
        assets=dg.map_asset_specs(_owned, [*dg.load_assets_from_package_module(stages), *studies]),
        asset_checks=dg.load_asset_checks_from_package_module(stages),
        jobs=[*jobs(), retraining, *study_jobs(studies), *clock_jobs(), *release_jobs(chosen)],
        schedules=schedules(),
        sensors=[pool_changed(retraining), alert_on_pool(), alert_on_failure(chosen)],
        resources=resources,
        executor=executor(),
        loggers=loggers,
    )


def _owned(spec: dg.AssetSpec) -> dg.AssetSpec:
    return spec.replace_attributes(owners=[OWNERS[str(spec.group_name)]])


defs = definitions()
