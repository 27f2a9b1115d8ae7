"""Alerts of runs of commands (`podium run` and others): sent without a daemon, and only once with one."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import dagster as dg
import pytest
import yaml

from assets.resources import Podium
from ops.alerts.notify import Kept, kept
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from pipelines.alerts import alert_on_failure, fail_orphaned_runs_and_alert
from pipelines.home import PROCESS, prepare, process_of
from pipelines.run import live
from tests.command import PODIUM, start_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def workspace(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    (project.config / "alerts.yaml").write_text("ui_url: https://dagster.example.org\n", encoding="utf-8")
    yield project


def told(workspace: Workspace) -> Kept:
    """Return the only notice."""
    [entry] = kept(workspace, 9)
    return entry


def looked_at_by_the_sensor(workspace: Workspace, instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Return the daemon's sensor's result for its failure."""
    [record] = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE).records
    event = record.event_log_entry.dagster_event
    assert event is not None
    context = dg.build_run_status_sensor_context("alert_on_failure", event, instance, run, resources={})
    skipped = alert_on_failure(Podium(root=str(workspace.root)))(context.for_run_failure())
    assert isinstance(skipped, dg.SkipReason)
    return str(skipped.skip_message)


def test_a_failed_run_of_a_command_is_reported_by_the_command_only(workspace: Workspace) -> None:
    with pytest.raises(PodiumError) as error:
        live(workspace, "quickstart", job="train")  # there are no problems to choose from
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs(dg.RunsFilter(job_name="train"))
        assert run.status == dg.DagsterRunStatus.FAILURE
        entry = told(workspace)
        assert (entry.notice.kind, entry.notice.title) == ("failure", "train failed")
        assert run.run_id in entry.notice.text
        assert str(error.value).splitlines()[0] in entry.notice.text
        assert entry.notice.link == f"https://dagster.example.org/runs/{run.run_id}"
        assert "is a command's" in looked_at_by_the_sensor(workspace, instance, run)
        told(workspace)


def test_the_next_command_alerts_about_a_killed_run(workspace: Workspace) -> None:
    prepare(workspace)

    @dg.job
    def lifecycle() -> None:
        pass

    with dg.DagsterInstance.get() as instance:
        gone = {PROCESS: "1:0.01"}
        started = dg.DagsterRunStatus.STARTED
        run = instance.create_run_for_job(lifecycle, status=started, tags=gone)
        fail_orphaned_runs_and_alert(workspace, instance)
        fail_orphaned_runs_and_alert(workspace, instance)
        entry = told(workspace)
        assert entry.notice.title == "lifecycle failed"
        assert run.run_id in entry.notice.text and "was killed" in entry.notice.text
        assert "is a command's" in looked_at_by_the_sensor(workspace, instance, run)


def test_a_run_that_repeats_a_commands_run_in_the_ui_is_not_the_commands(workspace: Workspace) -> None:
    """It has the tags of the original run, and another process executes it."""
    prepare(workspace)

    @dg.job
    def lifecycle() -> None:
        pass

    with dg.DagsterInstance.get() as instance:
        first = instance.create_run_for_job(lifecycle, status=dg.DagsterRunStatus.FAILURE, tags={PROCESS: "1:0.01"})
        again = instance.create_run_for_job(
            lifecycle, status=dg.DagsterRunStatus.STARTED, tags=first.tags,
            parent_run_id=first.run_id, root_run_id=first.run_id,
        )  # fmt: skip
        fail_orphaned_runs_and_alert(workspace, instance)
        kept_going = instance.get_run_by_id(again.run_id)
        assert kept_going is not None and kept_going.status == dg.DagsterRunStatus.STARTED
        assert process_of(kept_going) is None and process_of(first) == "1:0.01"


@pytest.mark.parametrize("person", [False, pytest.param(True, marks=pytest.mark.long)], ids=["cron", "person"])
def test_an_unattended_run_that_does_not_start_sends_an_alert(workspace: Workspace, person: bool) -> None:
    file = workspace.config / "recipes" / "quickstart.yaml"
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump(values | {"pool": "nowhere"}), encoding="utf-8")
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
    entries = kept(workspace, 9)
    assert len(entries) == (0 if person else 1)
    for entry in entries:
        assert (entry.notice.kind, entry.notice.title) == ("failure", "recipe quickstart did not begin")
        assert "nowhere" in entry.notice.text


@pytest.mark.long  # `make test` stops a run at a terminal (test_run_command.py)
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
    entry = told(workspace)
    assert entry.notice.title == "lifecycle failed"
    assert "interrupted" in entry.notice.text.lower()
