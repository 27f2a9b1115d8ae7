"""The code location of `podium dev` is named `podium`, and runs of `podium run` belong to it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ops.core.workspace import Workspace
from pipelines.dev import code_location
from pipelines.home import prepare, this_process

pytestmark = pytest.mark.slow
QUERY = "{repositoriesOrError {... on RepositoryConnection {nodes {name location {name}}}}}"


@pytest.mark.long
def test_the_code_location_is_podium_and_runs_of_the_command_line_belong_to_it(
    project: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    prepare(project)
    client = "from dagster_graphql.cli import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", client, *code_location(project), "--text", QUERY]
    done = subprocess.run(command, cwd=project.dagster_home, capture_output=True, text=True, check=True, timeout=240)
    [answer] = [line for line in done.stdout.splitlines() if line.startswith("{")]  # beside the server's log
    [repository] = json.loads(answer)["data"]["repositoriesOrError"]["nodes"]
    assert repository["location"]["name"] == "podium"
    assert this_process()[".dagster/repository"] == f"{repository['name']}@podium"
