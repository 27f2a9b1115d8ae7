"""A person moves the champion from the launchpad: the job `promote`, then `rollback`, and what MLflow shows of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest

from ops.core.workspace import Workspace
from ops.release import aliases, mlflow_store, registry
from tests.releases import YES, version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
PROMOTE = "ops:\n  promote_version:\n    config:\n      by: Ada\n      reason: answers in English again\n"
ROLLBACK = "ops:\n  roll_back_champion:\n    config:\n      by: Ada\n      reason: costlier than it said\n"


@pytest.fixture
def served(
    tmp_path: Path,
    make: Callable[[Path], Workspace],
    serve: Callable[[Workspace], AbstractContextManager[Any]],
    chromium: object,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Any]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = make(tmp_path / "project")
    aliases.promote_version(workspace, version(workspace).version, YES)
    version(workspace)
    with serve(workspace) as servers:
        yield servers


def launch(served: Any, tab: Any, job: str, config: str) -> dg.DagsterRun:
    """Launch it with that configuration, typed into the launchpad; the run when it is done."""
    page = tab.page
    tab.visit(f"{served.dagster}/locations/podium/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    editor.wait_for()
    button = page.get_by_role("button", name="Launch Run")
    page.get_by_text("Missing required config").first.wait_for()
    assert button.is_disabled(), "nothing starts before the name and the reason are given"
    tab.shoot(f"launchpad-{job}-opened")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(config.replace("by:", "who:"))
    page.get_by_text("Received unexpected config entry").first.wait_for()
    tab.shoot(f"launchpad-{job}-refused")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(config)
    page.get_by_text("Received unexpected config entry").first.wait_for(state="detached")
    tab.shoot(f"launchpad-{job}")
    button.click()
    page.wait_for_url("**/runs/*")
    run_id = urlsplit(page.url).path.rpartition("/")[2]
    with dg.DagsterInstance.from_config(str(served.workspace.dagster_home)) as instance:
        deadline = time.monotonic() + 600
        while (run := instance.get_run_by_id(run_id)) is None or run.status not in DONE:
            assert time.monotonic() < deadline, "the run does not end"
            time.sleep(0.5)
    page.get_by_text("Success", exact=True).first.wait_for()
    tab.shoot(f"run-{job}")
    return run


def champion(workspace: Workspace) -> mlflow_store.RegisteredVersion:
    known = registry.find_champion(workspace)
    assert known is not None
    return known


def test_promote_and_rollback_from_the_launchpad(served: Any, tab: Any) -> None:
    workspace = served.workspace
    assert launch(served, tab, "promote", PROMOTE).status == dg.DagsterRunStatus.SUCCESS
    assert champion(workspace).version == "2"
    assert champion(workspace).tags["override"] == "Ada: answers in English again"
    tab.page.goto(f"{served.mlflow}/#/models/{mlflow_store.MODEL_NAME}")
    for alias in ("champion", "previous"):
        tab.page.get_by_text(alias).first.wait_for()
    tab.shoot("mlflow-model")
    tab.page.goto(f"{served.mlflow}/#/models/{mlflow_store.MODEL_NAME}/versions/2")
    tab.page.get_by_text("Ada: answers in English again").first.wait_for()
    tab.shoot("mlflow-version")
    assert launch(served, tab, "rollback", ROLLBACK).status == dg.DagsterRunStatus.SUCCESS
    assert champion(workspace).version == "1"
    assert registry.get_version(workspace, "2").tags["rolled_back"] == "Ada: costlier than it said"
