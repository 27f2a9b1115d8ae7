"""A mistake in a file prevents the code location from loading, or a run from starting: the UI shows which, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from assets.resources import RunResource, offer_recipes
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from pipelines.dagster_home import prepare_home
from pipelines.dev import make_code_location_arguments

QUERY = (
    "{workspaceOrError {... on Workspace {locationEntries {name locationOrLoadError "
    "{__typename ... on PythonError {errorChain {error {message}}}}}}}}"
)


def test_a_folder_without_recipes_is_reported(project: Workspace) -> None:
    for file in (project.config / "recipes").iterdir():
        file.unlink()
    with pytest.raises(ConfigError, match=r"config/recipes: holds no recipe.*podium init"):
        offer_recipes(RunResource(root=str(project.root)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("broken", [pytest.param(False, marks=pytest.mark.soak), True])
def test_the_ui_shows_why_the_code_location_does_not_load(
    project: Workspace, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")
    prepare_home(project)
    recipes = project.config / "recipes"
    if broken:
        for file in recipes.iterdir():
            file.unlink()
    else:
        # An unreadable one only affects its own runs: other runs, and a rollback, continue.
        (recipes / "quickstart.yaml").write_text("name: [", encoding="utf-8")
    client = "from dagster_graphql.cli import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", client, *make_code_location_arguments(project), "--text", QUERY]
    done = subprocess.run(
        command, cwd=project.root, env=os.environ, capture_output=True, text=True, check=False, timeout=480
    )
    [answer] = [line for line in done.stdout.splitlines() if line.startswith("{")] or [done.stdout + done.stderr]
    [entry] = json.loads(answer)["data"]["workspaceOrError"]["locationEntries"]
    found = entry["locationOrLoadError"]
    assert entry["name"] == "podium"
    if broken:
        assert found["__typename"] == "PythonError"
        said = "".join(link["error"]["message"] for link in found["errorChain"])
        assert f"{recipes}: holds no recipe" in said
    else:
        assert found["__typename"] == "RepositoryLocation"
