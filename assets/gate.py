"""Conditions of the assets that spend money: the machine is ready, and the newest checks of the inputs have passed.

Dagster's blocking checks only stop later assets of the same run. An asset that is materialized alone in the web
interface is another run, so the assets that spend money check these conditions themselves.
"""

from __future__ import annotations

import dagster as dg

from assets.resources import RunResource
from ops.config import Setup
from ops.core.errors import PodiumError
from ops.planning.requirements import RunPart, check_ready

BLOCKING_CHECKS = {
    "raw_problems": ("well_formed", "gold_scores_one"),
    "shortlist": ("fit_to_ask_about", "gold_answers_score_one"),
    "worker_responses": ("whole_and_in_range",),
    "training_mix": ("fit_to_train_on", "gold_answers_score_one"),
    "base_policy": ("writes_workflows",),
}
"""The blocking checks of each asset."""


class FailedCheckError(PodiumError):
    """A check of an upstream asset failed. The message names the check and its result."""


def require_passed_checks(context: dg.AssetExecutionContext, *upstream: str) -> None:
    """Raise `FailedCheckError` if an asset in `upstream` failed a blocking check at its newest materialization.

    Checks that have not run since that materialization are ignored.
    """
    for name in upstream:
        asset = dg.AssetKey(name)
        latest = context.instance.get_latest_materialization_event(asset)
        for check in BLOCKING_CHECKS[name]:
            key = dg.AssetCheckKey(asset, check)
            records = context.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
            evaluation = records[0].evaluation if records else None
            if evaluation is None or evaluation.passed or evaluation.severity != dg.AssetCheckSeverity.ERROR:
                continue
            target = evaluation.target_materialization_data
            if latest is not None and target is not None and target.timestamp < latest.timestamp:
                continue
            remedy = f"Correct it and materialize {name} again, or run its check again"
            raise FailedCheckError(f"{name}: check {check!r} failed: {evaluation.description}. {remedy}")


def require_ready(podium: RunResource, *needs: RunPart, setup: Setup | None = None) -> None:
    """Raise `NotReady` with all requirements of the run's recipe that this machine does not meet for these parts of a
    pipeline run.

    `setup` is the recipe as a study changes it; None for the run's own recipe.
    """
    check_ready(setup or podium.load_setup(), needs, podium.get_snapshot().deepspeed)
