"""Assets chosen by text in a shell, as a person types it: `dagster asset … --select`."""

from __future__ import annotations

import subprocess
import sys

import dagster as dg
import pytest

from ops.core.workspace import Workspace
from pipelines.home import prepare

pytestmark = pytest.mark.slow


@pytest.fixture
def home(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A checkout whose instance is there, and DAGSTER_HOME pointing to it."""
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    prepare(project)
    return project


def dagster(workspace: Workspace, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "dagster", *arguments, "-m", "pipelines.definitions"]
    done = subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_assets_are_listed_by_a_selection(home: Workspace) -> None:
    after = dagster(home, "asset", "list", "--select", "raw_problems*").split()
    assert {"raw_problems", "shortlist", "training_mix", "benchmark_scores", "promotion"} <= set(after)
    assert "worker_pool" not in after


def test_an_asset_is_materialized_by_a_selection(home: Workspace) -> None:
    dagster(home, "asset", "materialize", "--select", 'key:"worker_pool" and not group:"data"')
    with dg.DagsterInstance.get() as instance:
        assert [key.to_user_string() for key in instance.all_asset_keys()] == ["worker_pool"]
        event = instance.get_latest_materialization_event(dg.AssetKey("worker_pool"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["answers_key"].value
