"""Alerts of failed runs: the failed part, the reason, and the command that continues."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg

from assets.placement import TEAM_VARIABLE
from assets.pool_change import HANDLING_JOBS
from assets.resources import RETRAINING_JOB, SNAPSHOT_TAG, RunResource
from ops.alerts import notify
from ops.alerts.catalogue import (
    CAP_REACHED,
    FIRST_STEP_INVALID,
    PLAN_WAITS,
    POOL_UNHANDLED,
    RUN_FAILED,
    RUN_NOT_STARTED,
)
from ops.alerts.notify import close_alerts
from ops.config import load_alerts
from ops.core.errors import ConfigError, OverBudget, PodiumError
from ops.core.workspace import Workspace
from ops.retraining.record import update_record
from ops.retraining.story import write_retraining_page
from ops.spending.ledger import CAP_MESSAGE
from ops.training.run.failure_reasons import INVALID_FIRST_STEP
from pipelines.dagster_home import fail_orphaned_runs, find_process

_FAILURES = (RUN_FAILED, CAP_REACHED, FIRST_STEP_INVALID)


def make_failure_sensor(podium: RunResource) -> dg.SensorDefinition:
    """Return the sensor that sends one alert for each run that fails.

    It ignores the run of a command, which sends the alert itself and needs no daemon, and a run that Dagster starts
    again.
    """

    @dg.run_failure_sensor(
        name="alert_on_failure",
        monitor_all_code_locations=False,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends an alert about each failed run to the channels of config/alerts.yaml.",
    )
    def sensor(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if run.tags.get("dagster/will_retry") == "true":
            return dg.SkipReason(f"run {run.run_id[:8]} begins again")
        if find_process(run):
            return dg.SkipReason(f"run {run.run_id[:8]} is a command's, which sends the alert")
        alert_on_failed_run(podium.find_workspace(), context.instance, run)
        return None

    return sensor


def make_success_sensor(podium: RunResource) -> dg.SensorDefinition:
    """Return the sensor that closes the alerts that a successful run solves. A command does this itself."""

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name="close_alerts",
        monitor_all_code_locations=False,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Closes the alerts that a successful run solves, such as that of the same run's failure.",
    )
    def sensor(context: dg.RunStatusSensorContext) -> None:
        close_alerts_of_run(podium.find_workspace(), context.dagster_run)

    return sensor


def close_alerts_of_run(workspace: Workspace, run: dg.DagsterRun) -> None:
    """Close the alerts that this successful run solves: those of an earlier failure of the same job and recipe, and,
    if the run handled a change of the pool, those of the change. Nothing is raised."""
    recipe = run.tags.get("podium/recipe", "")
    because = f"run {run.run_id[:8]} of {_name_run(run)} succeeded"
    close_alerts(workspace, _FAILURES, because, subject=_name_subject(run))
    close_alerts(workspace, (RUN_NOT_STARTED,), because, subject=recipe.partition(", seed ")[0])
    if run.job_name in HANDLING_JOBS and not run.asset_selection:
        close_alerts(workspace, (PLAN_WAITS, POOL_UNHANDLED), because)


def alert_on_failed_run(workspace: Workspace, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Send one alert about the failed run, of the kind `budget` if a cap ended it, in place of one about an earlier
    failure. Nothing is raised."""
    errors = list(_iterate_errors(instance, run))
    budget = any(error.cls_name == OverBudget.__name__ or CAP_MESSAGE in error.message for error in errors)
    name, subject, page = _name_run(run), _name_subject(run), find_run_url(workspace, run.run_id)
    cause = _find_cause(errors) or _find_failure_message(instance, run)
    text = f"run {run.run_id} of {name}\n{run.tags.get('podium/recipe', '')}\n\n{cause}"
    recipe, _, seed = run.tags.get("podium/recipe", "").partition(", seed ")
    if any(INVALID_FIRST_STEP in error.message for error in errors):
        title = f"{name} stopped in its first step of training"
        notice = FIRST_STEP_INVALID.make_notice(title, text, page, subject=subject, recipe=recipe, seed=seed)
    else:
        alert, what = (CAP_REACHED, "reached its budget") if budget else (RUN_FAILED, "failed")
        again = find_command_to_continue(run.job_name, recipe, seed)
        notice = alert.make_notice(f"{name} {what}", text, page, subject=subject, the_same_command=again)
    close_alerts(workspace, _FAILURES, f"run {run.run_id[:8]} of {name} has failed since", subject=subject)
    notify(workspace, notice)
    if run.job_name == RETRAINING_JOB and (key := run.tags.get(SNAPSHOT_TAG)):
        update_record(workspace, key, run=run.run_id, failure=cause, remedy=notice.command)
        write_retraining_page(workspace)


def find_command_to_continue(job: str, recipe: str, seed: str = "") -> str:
    """Return the command that continues a run of this job; if there is no such command, the place to continue it."""
    whole = "team start" if os.environ.get(TEAM_VARIABLE) else "run"
    of_recipe = {"lifecycle": whole, "train": "train", "evaluate": "evaluate"}
    if job in of_recipe:
        return " ".join(["podium", of_recipe[job], *filter(None, [recipe, f"--seed {seed}" if seed else ""])])
    alone = {"retraining": "podium retrain", "detect_drift": "podium drift"}
    decided = {"promote": "podium promote VERSION --by NAME --reason WHY", "rollback": "podium rollback --reason WHY"}
    return (alone | decided).get(job, "podium dev, then Re-execute on the run's page")


def fail_orphaned_runs_and_alert(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    """Mark runs of processes that were killed as failed, and send their alerts. Nothing is raised."""
    for run in fail_orphaned_runs(instance):
        alert_on_failed_run(workspace, instance, run)


def find_run_url(workspace: Workspace, run_id: str) -> str:
    """Return the address of the run's page if `config/alerts.yaml` has that of the web interface, otherwise ""."""
    try:
        ui = load_alerts(workspace.config).ui_url
    except ConfigError:  # `notify` logs this error
        return ""
    return f"{ui.rstrip('/')}/runs/{run_id}" if ui else ""


def _name_run(run: dg.DagsterRun) -> str:
    return _describe_run(run.asset_selection) if run.asset_selection else run.job_name


def _name_subject(run: dg.DagsterRun) -> str:
    return f"{_name_run(run)} of {run.tags.get('podium/recipe', 'no recipe')}"


def _describe_run(assets: Collection[dg.AssetKey]) -> str:
    """Return the name of a run; for a run of assets its job's name is Dagster's own."""
    names = sorted(key.to_user_string() for key in assets)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _iterate_errors(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Iterator[Any]:
    """Return the errors of the failed steps, each with its causes (Dagster has no public class for them)."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        event = entry.dagster_event
        error = event.step_failure_data.error if event else None
        while error is not None:
            yield error
            error = error.cause


def _find_cause(errors: list[Any]) -> str:
    """Return the message of the innermost `PodiumError`, which is written for users; without one, that of the innermost
    error."""
    names = {each.__name__ for each in (PodiumError, *_list_subclasses(PodiumError))}
    ours = [error for error in errors if error.cls_name in names]
    said = "\n".join((ours or errors)[-1].message.strip().splitlines()[:20]) if errors else ""
    return re.sub(r"^[\w.]+(Error|Exception|Failure): ", "", said)


def _list_subclasses(error: type[Exception]) -> list[type[Exception]]:
    return [found for each in error.__subclasses__() for found in (each, *_list_subclasses(each))]


def _find_failure_message(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Return why a run failed without a failed step."""
    entries = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    return str(entries[-1].dagster_event.message or "") if entries and entries[-1].dagster_event else ""
