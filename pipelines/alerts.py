"""Telling people that a run has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg

from assets.resources import Podium
from ops.alerts import Notice, notify
from ops.config import load_alerts
from ops.core.errors import ConfigError, OverBudget
from ops.core.workspace import Workspace
from ops.spending.ledger import NEXT_CALL
from pipelines.home import PROCESS, bury_dead_runs
from pipelines.lifecycle import LIFECYCLE_RUN


def alert_on_failure(podium: Podium) -> dg.SensorDefinition:
    """One notice for each run that fails. It costs nothing, so it is on.

    Left out are runs of which somebody else tells: a stage's own run, for the job that it belongs to fails with it, and
    a command's, which needs no daemon for it.
    """

    @dg.run_failure_sensor(
        name="alert_on_failure",
        monitor_all_code_locations=False,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tell people of failed runs, as config/alerts.yaml says",
    )
    def sensor(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if LIFECYCLE_RUN in run.tags:
            return dg.SkipReason(f"run {run.run_id[:8]} belongs to {run.tags[LIFECYCLE_RUN][:8]}")
        if PROCESS in run.tags:
            return dg.SkipReason(f"run {run.run_id[:8]} is a command's, which tells of it")
        tell_of_failure(podium.workspace(), context.instance, run)
        return None

    return sensor


def tell_of_failure(workspace: Workspace, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """One notice that the run has failed, of kind `budget` where a cap ended it. Raises nothing."""
    errors = list(_errors(instance, run))
    budget = any(error.cls_name == OverBudget.__name__ or NEXT_CALL in error.message for error in errors)
    name = _named(run.asset_selection) if run.asset_selection else run.job_name
    text = f"run {run.run_id} of {name}\n{run.tags.get('podium/recipe', '')}\n\n"
    text += _cause(errors) or _last_words(instance, run)
    title = f"{name} {'reached its budget' if budget else 'failed'}"
    notify(workspace, Notice("budget" if budget else "failure", title, text, run_page(workspace, run.run_id)))


def bury_and_tell(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    """Mark the runs of killed processes as failed and tell of those of which nobody else does. Raises nothing."""
    for run in bury_dead_runs(instance):
        if LIFECYCLE_RUN not in run.tags:
            tell_of_failure(workspace, instance, run)


def run_page(workspace: Workspace, run_id: str) -> str:
    """Where people see a run, if `config/alerts.yaml` says where the UI is; else nothing."""
    try:
        ui = load_alerts(workspace.config).ui_url
    except ConfigError:  # `notify` says so
        return ""
    return f"{ui.rstrip('/')}/runs/{run_id}" if ui else ""


def _named(assets: Collection[dg.AssetKey]) -> str:
    """What a run of assets is called: its job's name is Dagster's own."""
    names = sorted(key.to_user_string() for key in assets)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _errors(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[Any]:
    """The errors of its failed steps, each with its causes (Dagster's class for them is not public)."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        event = entry.dagster_event
        error = event.step_failure_data.error if event else None
        while error is not None:
            yield error
            error = error.cause


def _cause(errors: list[Any]) -> str:
    """The innermost error, in its own words: what a `PodiumError` says is meant for a person."""
    return "\n".join(errors[-1].message.strip().splitlines()[:20]) if errors else ""


def _last_words(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Why a run failed none of whose steps did."""
    entries = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    return str(entries[-1].dagster_event.message or "") if entries and entries[-1].dagster_event else ""
