"""One pipeline run at a time, runs and trainers of killed processes, and homes of Dagster and MLflow that are moved."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import RunResource
from ops.core.artifact_paths import repair_artifact_paths
from ops.core.errors import PodiumError
from ops.core.processes import hold_run_lock, unique_process_name
from ops.core.workspace import Workspace
from ops.release import mlflow_store
from ops.training.run import processes
from pipelines import dagster_home
from pipelines.dev import reserve_free_port
from pipelines.startup import QUIET_VARIABLES

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from ops.core.workspace import Workspace
from ops.core.processes import hold_run_lock
with hold_run_lock(Workspace(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""
WATCH = """
import time
from ops.release import mlflow_store
from ops.training.run import processes
processes.watch_parents()
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@contextmanager
def python(code: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A separate Python process that has printed its first line; it is killed in the end."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_two_lifecycles_of_a_checkout_exclude_each_other_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.state.mkdir()
    held = pytest.raises(PodiumError, match="another pipeline run")
    with python(HOLD, str(tmp_path)), held, hold_run_lock(workspace):
        pass
    with hold_run_lock(workspace), hold_run_lock(workspace):  # the command and its run
        assert (workspace.state / "lifecycle.lock").exists()


def test_a_run_of_a_killed_process_is_marked_failed_and_one_of_a_running_process_is_not(tmp_path: Path) -> None:
    @dg.job
    def nothing() -> None:
        pass

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        gone = {dagster_home.PROCESS_TAG: "1:0.01"}
        dead = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED, tags=gone)
        tags = dagster_home.make_process_tags()
        alive = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED, tags=tags)
        foreign = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)
        assert [run.run_id for run in dagster_home.fail_orphaned_runs(instance)] == [dead.run_id]
        statuses = {run.run_id: run.status for run in instance.get_runs()}
    assert statuses[dead.run_id] == dg.DagsterRunStatus.FAILURE
    assert statuses[alive.run_id] == statuses[foreign.run_id] == dg.DagsterRunStatus.STARTED


def test_prepare_makes_the_instance_and_silences_every_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT", *QUIET_VARIABLES):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    monkeypatch.setenv("DO_NOT_TRACK", "mine")
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    dagster_home.prepare_home(Workspace(tmp_path))
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / ".podium" / "dagster")
    assert os.environ["DVC_NO_ANALYTICS"] == "true"
    assert os.environ["DO_NOT_TRACK"] == "mine"
    with dg.DagsterInstance.get() as instance:
        assert instance.telemetry_enabled is False


def test_a_trainer_ends_with_the_process_that_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with python(WATCH, **{processes.PARENT_VARIABLE: unique_process_name(parent.pid)}) as trainer:
        parent.kill()
        parent.wait(240)
        assert trainer.wait(timeout=20) == 143


def test_a_trainer_without_a_watched_process_runs_on() -> None:
    with python(WATCH, **{processes.PARENT_VARIABLE: ""}) as trainer, pytest.raises(subprocess.TimeoutExpired):
        trainer.wait(timeout=1.5)


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wished = taken.getsockname()[1]
        with reserve_free_port(wished) as first, reserve_free_port(wished) as second:
            assert wished < first < second < wished + 100, "of two that start at once each has its own"


def test_an_instances_settings_are_replaced_whole_and_only_when_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODIUM_TEAM", raising=False)
    workspace, settings = Workspace(tmp_path), tmp_path / "dagster.yaml"
    settings.write_text("nux: {enabled: false}\n", encoding="utf-8")
    dagster_home.prepare_home(workspace)
    kept = workspace.dagster_home / "dagster.yaml"
    before = kept.stat()
    dagster_home.prepare_home(workspace)  # while a daemon may read it
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    settings.write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    dagster_home.prepare_home(workspace)
    assert kept.read_text(encoding="utf-8") == settings.read_text(encoding="utf-8")
    assert kept.stat().st_ino != before.st_ino, "processes that were reading the old one keep it"


def test_a_team_has_settings_of_its_own_and_a_home_on_each_machine_that_is_filled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, own = Workspace(tmp_path / "volume"), tmp_path / "machine"
    shipped, settings = workspace.config / "team" / "dagster.yaml", own / "dagster.yaml"
    shipped.parent.mkdir(parents=True)
    shipped.write_text("nux: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("PODIUM_TEAM", "1")
    monkeypatch.setenv("DAGSTER_HOME", str(own))
    dagster_home.prepare_home(workspace)
    assert settings.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")
    assert os.environ["DAGSTER_HOME"] == str(own) and not workspace.dagster_home.exists()
    settings.write_text("run_launcher: {module: dagster_k8s, class: K8sRunLauncher}\n", encoding="utf-8")
    dagster_home.prepare_home(workspace)
    assert "K8sRunLauncher" in settings.read_text(encoding="utf-8"), "a cluster's own is not replaced"


# ── a moved checkout ─────────────────────────────────────────────────────────


def kept_run(workspace: Workspace) -> str:
    with mlflow_store.connect(workspace) as client:
        run = client.create_run(mlflow_store.get_or_create_experiment(client, workspace)).info.run_id
        client.log_text(run, "what was logged", "note.txt")
    return str(run)


def note(workspace: Workspace, run: str, folder: Path) -> str:
    with mlflow_store.connect(workspace) as client:
        return Path(client.download_artifacts(run, "note.txt", str(folder))).read_text(encoding="utf-8")


def test_a_moved_store_finds_its_artifacts_and_logs_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, after, out = tmp_path / "first place", tmp_path / "second place", tmp_path / "out"
    before.mkdir()
    out.mkdir()
    run = kept_run(Workspace(before))
    before.rename(after)
    workspace = Workspace(after)
    with caplog.at_level(logging.WARNING, "ops.core.artifact_paths"):
        assert note(workspace, run, out) == "what was logged"
        assert note(workspace, run, out) == "what was logged"
    [said] = [record.getMessage() for record in caplog.records if record.name == "ops.core.artifact_paths"]
    assert "first place" in said and "second place" in said
    rest = (workspace.state / "mlflow" / "mlflow.db").read_bytes()
    second = kept_run(workspace)
    assert note(workspace, second, out) == "what was logged"
    assert b"second%20place" in rest


def test_artifacts_elsewhere_on_purpose_are_unchanged(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "here")
    kept_run(workspace)
    file = workspace.state / "mlflow" / "mlflow.db"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE experiments SET artifact_location = 's3://team/podium/.podium/mlflow/artifacts'")
        connection.execute("INSERT INTO experiments (name, artifact_location) VALUES ('shelf', '/mnt/shelf/artifacts')")
    before = file.read_bytes()
    assert repair_artifact_paths(workspace) == 0
    assert file.read_bytes() == before


def test_another_name_of_the_same_folder_is_no_move(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "real")
    kept_run(workspace)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert repair_artifact_paths(Workspace(tmp_path / "link")) == 0


def test_without_a_store_nothing_is_made(tmp_path: Path) -> None:
    assert repair_artifact_paths(Workspace(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_dagster_home_moves_with_its_checkout(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    shutil.copyfile(ROOT / "dagster.yaml", before / "dagster.yaml")
    shutil.copytree(ROOT / "config", before / "config")
    dagster_home.prepare_home(Workspace(before))

    @dg.asset
    def thing() -> int:
        return 6

    with dg.DagsterInstance.get() as instance:
        old = {"resources": {"podium": {"config": {"root": str(before)}}}}
        assert dg.materialize([thing], instance=instance, tags={"podium/old": str(old)}).success
    before.rename(after)
    dagster_home.prepare_home(Workspace(after))
    with dg.DagsterInstance.get() as instance:
        assert instance.root_directory == str(after / ".podium" / "dagster")
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        assert instance.get_latest_materialization_event(thing.key) is not None

        @dg.asset
        def double(thing: int) -> int:
            return 2 * thing

        assert dg.materialize([double, thing.to_source_asset()], instance=instance).output_for_node("double") == 12
    moved = RunResource(root=str(before), recipe="quickstart").find_workspace()
    assert moved.root == after, "a run that was recorded before works on this checkout"
