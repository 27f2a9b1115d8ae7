"""Dagster's own commands with the project: a selection of assets by text, and the code location of `podium dev`."""

from __future__ import annotations

import json
import subprocess
import sys

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._cli import create_dagster_cli  # Dagster has no public way to do this

from ops.core.workspace import Workspace
from pipelines.dagster_home import make_process_tags
from pipelines.dev import make_code_location_arguments
from tests.integration.checkouts import metadata

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("instance")]
QUERY = "{repositoriesOrError {... on RepositoryConnection {nodes {name location {name}}}}}"


def dagster(*arguments: str) -> str:
    """Run the command in this process and return its output."""
    done = CliRunner().invoke(create_dagster_cli(), [*arguments, "-m", "pipelines.definitions"])
    assert done.exit_code == 0, done.output
    return done.output


def test_assets_are_listed_by_a_selection() -> None:
    after = dagster("asset", "list", "--select", "raw_problems*").split()
    assert {"raw_problems", "shortlist", "training_mix", "benchmark_scores", "promotion"} <= set(after)
    assert "worker_pool" not in after


def test_an_asset_is_materialized_by_a_selection(instance: dg.DagsterInstance) -> None:
    dagster("asset", "materialize", "--select", 'key:"worker_pool" and not group:"data"')
    assert [key.to_user_string() for key in instance.all_asset_keys()] == ["worker_pool"]
    assert metadata(instance, "worker_pool")["answers_key"]


@pytest.mark.long
def test_the_code_location_is_podium_and_runs_of_the_command_line_belong_to_it(project: Workspace) -> None:
    client = "from dagster_graphql.cli import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", client, *make_code_location_arguments(project), "--text", QUERY]
    done = subprocess.run(command, cwd=project.dagster_home, capture_output=True, text=True, check=True, timeout=240)
    [answer] = [line for line in done.stdout.splitlines() if line.startswith("{")]  # beside the server's log
    [repository] = json.loads(answer)["data"]["repositoriesOrError"]["nodes"]
    assert repository["location"]["name"] == "podium"
    assert make_process_tags()[".dagster/repository"] == f"{repository['name']}@podium"
