"""A moved checkout: its MLflow store names the new folder, and nothing else changes."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Podium
from ops.core.backup import settle
from ops.core.workspace import Workspace
from ops.release import store
from pipelines.home import prepare

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def kept_run(workspace: Workspace) -> str:
    with store.connected(workspace) as client:
        run = client.create_run(store.experiment(client, workspace)).info.run_id
        client.log_text(run, "what was logged", "note.txt")
    return str(run)


def note(workspace: Workspace, run: str, folder: Path) -> str:
    with store.connected(workspace) as client:
        return Path(client.download_artifacts(run, "note.txt", str(folder))).read_text(encoding="utf-8")


def test_a_moved_store_finds_its_artifacts_and_logs_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, after, out = tmp_path / "first place", tmp_path / "second place", tmp_path / "out"
    before.mkdir()
    out.mkdir()
    run = kept_run(Workspace(before))
    before.rename(after)
    workspace = Workspace(after)
    with caplog.at_level(logging.WARNING, "ops.core.backup"):
        assert note(workspace, run, out) == "what was logged"
        assert note(workspace, run, out) == "what was logged"
    [said] = [record.getMessage() for record in caplog.records if record.name == "ops.core.backup"]
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
    assert settle(workspace) == 0
    assert file.read_bytes() == before


def test_another_name_of_the_same_folder_is_no_move(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "real")
    kept_run(workspace)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert settle(Workspace(tmp_path / "link")) == 0


def test_without_a_store_nothing_is_made(tmp_path: Path) -> None:
    assert settle(Workspace(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_dagster_home_moves_with_its_checkout(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    shutil.copyfile(ROOT / "dagster.yaml", before / "dagster.yaml")
    shutil.copytree(ROOT / "config", before / "config")
    prepare(Workspace(before))

    @dg.asset
    def thing() -> int:
        return 6

    with dg.DagsterInstance.get() as instance:
        old = {"resources": {"podium": {"config": {"root": str(before)}}}}
        assert dg.materialize([thing], instance=instance, tags={"podium/old": str(old)}).success
    before.rename(after)
    prepare(Workspace(after))
    with dg.DagsterInstance.get() as instance:
        assert instance.root_directory == str(after / ".podium" / "dagster")
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        assert instance.get_latest_materialization_event(thing.key) is not None

        @dg.asset
        def double(thing: int) -> int:
            return 2 * thing

        assert dg.materialize([double, thing.to_source_asset()], instance=instance).output_for_node("double") == 12
    moved = Podium(root=str(before), recipe="quickstart").workspace()
    assert moved.root == after, "a run that was recorded before works on this checkout"
