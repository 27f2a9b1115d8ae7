"""Dagster's daemon is killed, or two run at once: each queued run is executed once. Also runs that bypass the queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.resources import RunResource
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.stages.release import roll_back
from pipelines.dagster_home import make_process_tags, prepare_home
from pipelines.definitions import make_definitions
from pipelines.dev import make_code_location_arguments
from pipelines.release import make_release_jobs
from pipelines.run_queue import UNQUEUED_JOBS
from tests.releases import YES, version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE_S = 240.0
DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)
REASON = "it answers in French"
ROLLBACK = {"ops": {"roll_back_champion": {"config": {"by": "Ada", "reason": REASON}}}}
PROMOTE = {"ops": {"promote_version": {"config": {"by": "Ada", "reason": "it was the questions", "version": "3"}}}}


@contextmanager
def daemon(workspace: Workspace, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`dagster-daemon run` as `podium dev` starts it, killed in the end."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", "from dagster._daemon.cli import main; main()", "run",
             *make_code_location_arguments(workspace)],
            cwd=workspace.root, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(960)


def wait(reached: object, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def launch(workspace: Workspace, job: str, config: dict[str, object], folder: Path) -> None:
    """Launch it like the UI."""
    given = folder / f"{job}.yaml"
    given.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = ["job", "launch", *make_code_location_arguments(workspace), "--job", job, "--config", str(given)]
    subprocess.run(
        [sys.executable, "-m", "dagster", *command], cwd=workspace.root, check=True, capture_output=True, timeout=960
    )


@pytest.fixture
def released(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A project with three versions, each of which was champion once."""
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for number in "123":
        version(project)
        aliases.promote_version(project, number, YES)
    return project


def champion(workspace: Workspace) -> str:
    known = registry.find_champion(workspace)
    assert known is not None
    return known.version


@pytest.mark.long
def test_a_rollback_is_done_once_for_a_run(released: Workspace) -> None:
    """A daemon that starts a run again does not roll back further."""
    for _ in range(2):
        roll_back(released, REASON, "Ada", "0123-4567")
    assert champion(released) == "2"


@pytest.mark.long  # the same without daemons above; with one daemon below
def test_a_queued_rollback_is_done_once_after_a_kill_and_by_two_daemons(released: Workspace, tmp_path: Path) -> None:
    settings = yaml.safe_load((released.root / "dagster.yaml").read_text(encoding="utf-8"))
    del settings["run_coordinator"]  # as in workspaces of before: all jobs wait
    (released.root / "dagster.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    prepare_home(released)
    log = tmp_path / "daemon.log"
    with dg.DagsterInstance.get() as instance:
        with daemon(released, log) as first:
            wait(lambda: instance.get_daemon_statuses() or first.poll() is not None, log)
        assert first.returncode == -signal.SIGKILL, log.read_text()
        launch(released, "rollback", ROLLBACK, tmp_path)
        [run] = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.QUEUED, "no daemon runs that could take it"
        with daemon(released, log), daemon(released, log):
            wait(lambda: champion(released) == "2" and instance.get_runs()[0].status in DONE, log)
        # Dagster does not prevent two daemons from starting a run twice; the second start may mark it as failed.
        [run] = instance.get_runs()
        roll_back(released, REASON, "Ada", run.run_id)  # as the other daemon, which may start it too
    assert champion(released) == "2", "gone back once"


@pytest.mark.long
def test_promote_and_rollback_do_not_wait_for_a_pipeline_run_or_the_daemon(released: Workspace, tmp_path: Path) -> None:
    prepare_home(released)
    log = tmp_path / "daemon.log"
    with dg.DagsterInstance.get() as instance:

        def latest(job: str) -> dg.DagsterRun:
            return instance.get_runs(dg.RunsFilter(job_name=job), limit=1)[0]

        pipeline_run = instance.create_run_for_job(
            make_definitions().resolve_job_def("lifecycle"),
            status=dg.DagsterRunStatus.STARTED,
            tags=make_process_tags(),
        )
        launch(released, "rollback", ROLLBACK, tmp_path)
        wait(lambda: latest("rollback").status in DONE, log)
        assert latest("rollback").status == dg.DagsterRunStatus.SUCCESS, "no daemon is needed"
        assert champion(released) == "2"
        with daemon(released, log):
            launch(released, "costs", {}, tmp_path)
            launch(released, "promote", PROMOTE, tmp_path)
            wait(lambda: latest("promote").status in DONE, log)
            assert latest("promote").status == dg.DagsterRunStatus.SUCCESS
            assert champion(released) == "3"
            assert latest("costs").status == dg.DagsterRunStatus.QUEUED, "every other job waits for the pipeline run"
            instance.report_run_canceled(pipeline_run)
            wait(lambda: latest("costs").status != dg.DagsterRunStatus.QUEUED, log)
            wait(lambda: latest("costs").status in DONE, log)


def test_the_queue_knows_the_jobs_of_the_release() -> None:
    assert {job.name for job in make_release_jobs(RunResource())} == set(UNQUEUED_JOBS)
