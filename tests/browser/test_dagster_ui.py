"""What `podium dev` serves, in a real browser: the asset graph, an asset materialized by clicking, MLflow."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dagster as dg
import pytest

from ops.config import load_pool
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.workflow.team import Team
from pipelines.definitions import defs
from tests.command import PODIUM

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Served = Any
Tab = Any
"""Of `conftest`: the servers' addresses, and a page with the folder of its pictures."""


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[Path], Workspace],
    serve: Callable[[Workspace], AbstractContextManager[Served]],
    chromium: object,
) -> Iterator[Served]:
    with serve(make(tmp_path_factory.mktemp("served") / "project")) as servers:
        yield servers


def open_graph(served: Served, tab: Tab) -> None:
    """The global asset graph, every group of it unfolded, in a window that holds all of it: Dagster draws no other."""
    tab.page.set_viewport_size({"width": 1600, "height": 3600})
    tab.visit(f"{served.dagster}/asset-groups")
    tab.page.get_by_role("button", name="Materialize all").wait_for()
    tab.page.keyboard.press("Alt+e")
    node(tab, "worker_pool").wait_for()


def node(tab: Tab, text: str) -> Locator:
    """What the graph (not the list beside it) calls `text`: a name too long for its box has dots in its middle."""
    shortened = rf"|{re.escape(text[:4])}\w*…\w*{re.escape(text[-6:])}" if len(text) > 12 else ""
    return tab.page.locator("foreignObject").get_by_text(re.compile(rf"^(?:{re.escape(text)}{shortened})$")).first


def test_the_graph_shows_every_asset_and_group(served: Served, tab: Tab) -> None:
    open_graph(served, tab)
    tab.shoot("asset-graph")
    specs = defs.resolve_all_asset_specs()
    assert specs
    for name in {spec.key.path[-1] for spec in specs} | {spec.group_name for spec in specs}:
        node(tab, name).wait_for()


def test_an_asset_is_materialized_by_clicking(served: Served, tab: Tab) -> None:
    page = tab.page
    open_graph(served, tab)
    node(tab, "worker_pool").click()
    page.get_by_role("button", name="Materialize selected").click()
    page.locator("a[href*='/runs/']").first.click()  # in the message that it is launched, or beside the graph
    page.wait_for_url("**/runs/*")
    page.get_by_text("Success", exact=True).first.wait_for()
    tab.shoot("run")
    with dg.DagsterInstance.from_config(str(served.workspace.dagster_home)) as instance:
        (run,) = instance.get_runs()
        assert run.run_id == urlsplit(page.url).path.rpartition("/")[2]
        assert run.status == dg.DagsterRunStatus.SUCCESS
        event = instance.get_latest_materialization_event(dg.AssetKey("worker_pool"))
        assert event is not None
        assert event.run_id == run.run_id

    page.goto(f"{served.dagster}/assets/worker_pool")
    table = page.locator("table table").first  # inside the row of its metadata, without a click
    table.wait_for()
    tab.shoot("asset-metadata")
    for worker in load_pool(served.workspace.config, "quickstart").workers:
        assert table.get_by_role("cell", name=worker.name, exact=True).count() == 1
    page.get_by_text("Show JSON").click()
    page.get_by_text('"concurrency"').first.wait_for()


def test_mlflow_is_beside_it(served: Served, tab: Tab) -> None:
    tab.visit(served.mlflow)
    tab.page.get_by_text("Welcome to MLflow").wait_for()
    tab.page.get_by_role("link", name="Experiments").first.wait_for()
    assert tab.page.get_by_role("link", name="Experiments").first.is_visible()
    tab.shoot("mlflow")


def test_a_workflow_is_a_tree_of_spans_in_mlflow(served: Served, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tab.visit(served.mlflow)
    tab.page.get_by_text("Welcome to MLflow").wait_for()  # the server has made its store
    trace_id, experiment_id = traced(served.workspace)
    tab.page.goto(f"{served.mlflow}/#/experiments/{experiment_id}/traces?selectedEvaluationId={trace_id}")
    for span in ("1 · algebraist", "2 · librarian", "3 · analyst (pruned)", "4 · editor"):
        tab.page.get_by_text(span, exact=True).first.wait_for()
    tab.page.get_by_text("4 · editor", exact=True).first.click()
    tab.page.get_by_text("Combine both.").first.wait_for()
    assert tab.page.get_by_text("Combine both.").first.is_visible()
    tab.shoot("mlflow-trace")


def test_a_commands_run_is_on_the_pages_of_its_job_and_its_assets(served: Served, tab: Tab) -> None:
    page, root = tab.page, served.workspace.root
    done = subprocess.run(
        [*PODIUM, "train"], cwd=root, env=os.environ | {"PODIUM_ROOT": str(root)}, capture_output=True, timeout=600,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # there are no problems to choose from
    with dg.DagsterInstance.from_config(str(served.workspace.dagster_home)) as instance:
        [whole] = instance.get_runs(dg.RunsFilter(job_name="train"))
    tab.visit(f"{served.dagster}/locations/podium/jobs/train/runs")
    page.locator(f"a[href$='/runs/{whole.run_id}']").first.wait_for()
    tab.shoot("runs-of-a-job")
    page.goto(f"{served.dagster}/runs/{whole.run_id}")
    page.get_by_text("training_mix", exact=True).first.wait_for()
    tab.shoot("run-of-a-command")
    page.goto(f"{served.dagster}/assets/conductor")
    page.locator("a[href$='/jobs/train']").first.wait_for()
    page.locator("a[href$='/assets/training_mix']").first.wait_for()
    tab.shoot("asset-with-its-job")


def traced(workspace: Workspace) -> tuple[str, str]:
    """(trace, experiment) of a workflow that was run here and exported."""
    import asyncio

    from ops.config import Worker
    from ops.core.response import Response
    from ops.release.mlflow_store import connect, get_or_create_experiment
    from ops.release.tracing import TaggedTrace, build_execution_tree, store_traces
    from ops.workflow.execution import execute_workflow
    from ops.workflow.grammar import Step, Workflow
    from ops.workflow.trace import QuestionTrace

    class Tool:
        async def complete(self, worker: Worker, messages: object, *, sample: int = 0, **_: object) -> Response:
            await asyncio.sleep(0.1)
            return Response(f"{worker.name} says 42", Usage(100, 20), 0.01, 0.1, "stop")

    offered = [Worker(name=name, model="local/none") for name in ("algebraist", "librarian", "analyst", "editor")]
    steps = (Step(0, "Compute."), Step(1, "Look it up."), Step(2, "Idle."), Step(3, "Combine both.", (0, 1)))
    with ThreadPoolExecutor(1) as thread:  # Playwright's own event loop runs in this one
        trace = thread.submit(
            asyncio.run, execute_workflow(Workflow(steps), "What is 6 * 7?", Team(offered, Tool()))
        ).result(720)
    with connect(workspace) as client:
        home = get_or_create_experiment(client, workspace)
        tree = TaggedTrace(build_execution_tree(QuestionTrace.from_execution(trace), "math500 · p"), {})
        [made] = store_traces(workspace.mlflow_uri, home, [tree])
    return made, home
