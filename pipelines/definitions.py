"""The one place where assets, checks, jobs, schedule, sensor and resources come together."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

import assets as stages
from assets.resources import LogReporter, Podium, Reporter, choosing
from pipelines.home import quiet
from pipelines.lifecycle import jobs_over
from pipelines.retraining import nightly, pool_changed

_STEP_S = 4 * 3600.0
"""No step takes as long."""


def definitions(
    podium: Podium | None = None,
    reporter: Reporter | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
) -> dg.Definitions:
    """All of Podium for Dagster; another resource or logger swaps a part without patching."""
    quiet()
    chosen = podium or Podium()
    resources = {
        "podium": choosing(chosen).configure_at_launch(**chosen.model_dump(exclude={"recipe"}, exclude_none=True)),
        "reporter": reporter or LogReporter(),
        # Asked to stop, it finishes a step; asked again, this process ends, and the trainer with it.
        "trainer": dg.PipesSubprocessClient(termination_timeout_seconds=_STEP_S),
    }
    catalogue = dg.Definitions(
        assets=dg.load_assets_from_package_module(stages),
        asset_checks=dg.load_asset_checks_from_package_module(stages),
        resources=resources,
        executor=dg.in_process_executor,
        loggers=loggers,
    )
    jobs = jobs_over(catalogue)
    lifecycle, costs = jobs["lifecycle"], jobs["costs"]
    return dg.Definitions.merge(
        catalogue,
        dg.Definitions(
            jobs=[*jobs.values()], schedules=[nightly(lifecycle)], sensors=[pool_changed(lifecycle, costs)]
        ),
    )


defs = definitions()
