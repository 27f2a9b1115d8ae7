"""Selection of assets by text in a shell: `dagster asset … --select`."""

from __future__ import annotations

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._cli import create_dagster_cli  # Dagster has no public way to do this

from ops.core.workspace import Workspace
from pipelines.home import prepare

pytestmark = pytest.mark.slow


@pytest.fixture
def home(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A checkout with an instance, and DAGSTER_HOME set to it."""
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    prepare(project)
    return project


def dagster(*arguments: str) -> str:
    """Run the command in this process and return its output."""
    done = CliRunner().invoke(create_dagster_cli(), [*arguments, "-m", "pipelines.definitions"])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("home")
def test_assets_are_listed_by_a_selection() -> None:
    after = dagster("asset", "list", "--select", "raw_problems*").split()
    assert {"raw_problems", "shortlist", "training_mix", "benchmark_scores", "promotion"} <= set(after)
    assert "worker_pool" not in after


@pytest.mark.usefixtures("home")
def test_an_asset_is_materialized_by_a_selection() -> None:
    dagster("asset", "materialize", "--select", 'key:"worker_pool" and not group:"data"')
    with dg.DagsterInstance.get() as instance:
        assert [key.to_user_string() for key in instance.all_asset_keys()] == ["worker_pool"]
        event = instance.get_latest_materialization_event(dg.AssetKey("worker_pool"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["answers_key"].value
