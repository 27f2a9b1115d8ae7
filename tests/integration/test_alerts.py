"""Alerts of failed runs: by the daemon's sensor, or by the command whose run it is; one notice each."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import RunResource
from ops.alerts.notify import Notice, load_notices
from ops.core.errors import OverBudget, PodiumError
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.training.run.failure_reasons import INVALID_FIRST_STEP
from pipelines.alerts import fail_orphaned_runs_and_alert, find_command_to_continue, make_failure_sensor
from pipelines.dagster_home import PROCESS_TAG, find_process
from pipelines.definitions import make_definitions
from pipelines.run import run_job
from tests.command import PODIUM, start_run
from tests.integration.checkouts import configure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def workspace(project: Workspace) -> Workspace:
    configure(project, {"alerts": {"ui_url": "https://dagster.example.org/"}})
    return project


def only_notice(workspace: Workspace) -> Notice:
    [entry] = load_notices(workspace, 9)
    return entry.notice


def seen_by_the_sensor(
    workspace: Workspace, instance: dg.DagsterInstance, event: dg.DagsterEvent, run: dg.DagsterRun
) -> object:
    context = dg.build_run_status_sensor_context("alert_on_failure", event, instance, run, resources={})
    return make_failure_sensor(RunResource(root=str(workspace.root)))(context.for_run_failure())


def failed_run(workspace: Workspace, instance: dg.DagsterInstance, error: Exception, **tags: str) -> str:
    """Make a run fail like one of Podium's assets, tick the sensor once, and return the run's id."""

    @dg.op
    def ask() -> None:
        try:
            raise error
        except PodiumError as cause:
            raise RuntimeError("the stage failed") from cause

    @dg.job
    def lifecycle() -> None:
        ask()

    result = lifecycle.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
    [event] = [event for event in result.all_events if event.is_failure and not event.is_step_event]
    seen_by_the_sensor(workspace, instance, event, result.dagster_run)
    return result.run_id


def refused(folder: Path) -> str:
    """Return the message of a cap as a trainer passes it on."""
    with pytest.raises(OverBudget) as error:
        Ledger(folder / "ledger.sqlite").reserve("run", 2.0, cap_usd=1.0)
    return str(error.value)


@pytest.mark.parametrize(("error", "kind", "title"), [
    (PodiumError("config/x.yaml: field: is wrong. Correct it"), "failure", "lifecycle failed"),
    (OverBudget("stopped at the cap"), "budget", "lifecycle reached its budget"),
    (None, "budget", "lifecycle reached its budget"),  # of a trainer, in its own words
    (PodiumError(f"{INVALID_FIRST_STEP}, before"), "failure", "lifecycle stopped in its first step of training"),
])  # fmt: skip
def test_a_failed_run_sends_one_alert(
    workspace: Workspace, instance: dg.DagsterInstance, tmp_path: Path, error: Exception | None, kind: str, title: str
) -> None:
    error = error or PodiumError(f"training failed: {refused(tmp_path)}")
    run_id = failed_run(workspace, instance, error, recipe="small, seed 3")
    notice = only_notice(workspace)
    assert (notice.kind, notice.title) == (kind, title)
    assert notice.command == "podium run small --seed 3" and "Command: podium run" in notice.body
    assert str(error) in notice.text and run_id in notice.text
    assert notice.link == f"https://dagster.example.org/runs/{run_id}"


def test_a_run_that_begins_again_is_not_told(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    failed_run(workspace, instance, PodiumError("no"), **{"dagster/will_retry": "true"})
    assert load_notices(workspace, 9) == []


def test_it_is_on_from_the_start() -> None:
    sensor = make_definitions().resolve_sensor_def("alert_on_failure")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


@pytest.mark.parametrize(("team", "job", "command"), [
    ("", "lifecycle", "podium run small --seed 3"), ("1", "lifecycle", "podium team start small --seed 3"),
    ("", "retraining", "podium retrain"), ("", "detect_drift", "podium drift"),
    ("", "__ASSET_JOB", "podium dev, then Re-execute on the run's page"),
])  # fmt: skip
def test_the_command_that_goes_on_with_a_run(
    monkeypatch: pytest.MonkeyPatch, team: str, job: str, command: str
) -> None:
    monkeypatch.setenv("PODIUM_TEAM", team)
    assert find_command_to_continue(job, "small", "3") == command


def left_to_the_command(workspace: Workspace, instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the daemon's sensor sends nothing, because the run is a command's."""
    [record] = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE).records
    event = record.event_log_entry.dagster_event
    assert event is not None
    skipped = seen_by_the_sensor(workspace, instance, event, run)
    return isinstance(skipped, dg.SkipReason) and "is a command's" in str(skipped.skip_message)


@dg.job
def lifecycle() -> None:
    pass


def test_a_failed_run_of_a_command_is_reported_by_the_command_only(workspace: Workspace) -> None:
    with pytest.raises(PodiumError) as error:
        run_job(workspace, "quickstart", job="train")  # there are no problems to choose from
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs(dg.RunsFilter(job_name="train"))
        assert run.status == dg.DagsterRunStatus.FAILURE
        assert left_to_the_command(workspace, instance, run)
    notice = only_notice(workspace)
    assert (notice.kind, notice.title) == ("failure", "train failed")
    assert run.run_id in notice.text and str(error.value).splitlines()[0] in notice.text
    assert notice.link == f"https://dagster.example.org/runs/{run.run_id}"


def test_the_next_command_alerts_about_a_killed_run(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    run = instance.create_run_for_job(lifecycle, status=dg.DagsterRunStatus.STARTED, tags={PROCESS_TAG: "1:0.01"})
    for _ in range(2):
        fail_orphaned_runs_and_alert(workspace, instance)
    notice = only_notice(workspace)
    assert notice.title == "lifecycle failed"
    assert run.run_id in notice.text and "was killed" in notice.text
    assert left_to_the_command(workspace, instance, run)


def test_a_run_that_repeats_a_commands_run_in_the_ui_is_not_the_commands(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    """It has the tags of the original run, and another process executes it."""
    first = instance.create_run_for_job(lifecycle, status=dg.DagsterRunStatus.FAILURE, tags={PROCESS_TAG: "1:0.01"})
    again = instance.create_run_for_job(
        lifecycle, status=dg.DagsterRunStatus.STARTED, tags=first.tags,
        parent_run_id=first.run_id, root_run_id=first.run_id,
    )  # fmt: skip
    fail_orphaned_runs_and_alert(workspace, instance)
    kept_going = instance.get_run_by_id(again.run_id)
    assert kept_going is not None and kept_going.status == dg.DagsterRunStatus.STARTED
    assert find_process(kept_going) is None and find_process(first) == "1:0.01"


@pytest.mark.parametrize("person", [False, pytest.param(True, marks=pytest.mark.long)], ids=["cron", "person"])
def test_an_unattended_run_that_does_not_start_sends_an_alert(workspace: Workspace, person: bool) -> None:
    configure(workspace, {"recipes/quickstart": {"base": "pilot", "name": "quickstart", "pool": "nowhere"}})
    terminal, stderr = pty.openpty()
    try:
        process = subprocess.run(
            [*PODIUM, "run"], cwd=workspace.root, env=os.environ | {"PODIUM_ROOT": str(workspace.root)},
            stdout=subprocess.DEVNULL, stderr=stderr if person else subprocess.DEVNULL, check=False,
            timeout=480,
        )  # fmt: skip
    finally:
        os.close(stderr)
        os.close(terminal)
    assert process.returncode == 1
    entries = load_notices(workspace, 9)
    assert len(entries) == (0 if person else 1)
    for entry in entries:
        assert (entry.notice.kind, entry.notice.title) == ("failure", "recipe quickstart did not begin")
        assert "nowhere" in entry.notice.text


@pytest.mark.long  # `make test` stops a run at a terminal (test_endings.py)
def test_a_stopped_run_without_a_terminal_sends_an_alert_and_closes_its_output(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A `tail` that outlives its run, for example one started when the signal arrives, would keep the pipe open.
    tail = workspace.root / "programs" / "tail"
    tail.parent.mkdir()
    tail.write_text("#!/bin/sh\ntrap '' TERM\nsleep 200\n", encoding="utf-8")
    tail.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tail.parent}{os.pathsep}{os.environ['PATH']}")
    process = start_run(workspace.root)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "raw_problems" in line:  # the first step has ended
                break
        os.killpg(process.pid, signal.SIGTERM)
        rest, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 143, rest
    notice = only_notice(workspace)
    assert notice.title == "lifecycle failed" and "interrupted" in notice.text.lower()
