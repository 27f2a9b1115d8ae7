"""The real order in which a person clicks: launch a life, edit a price while it runs, switch the sensor on, then do
a part of the life again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest
import yaml

from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from pipelines.lifecycle import JOBS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TRAINED = ("math500", "mmlu", "rlpr", "livecodebench")
RECIPE = {
    "name": "tiny",
    "pool": "quickstart",
    "benchmarks": {name: {"train": 24, "test": 4} for name in TRAINED},
    "curation": {"per_domain": 6, "shortlist_factor": 1.25, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
    "policy": {"kind": "scratch", "vocabulary": 800, "hidden": 96, "layers": 2, "heads": 4, "max_tokens": 384},
    "cold_start": {"steps": 60, "batch": 16, "learning_rate": 3e-3},
    "grpo": {
        "steps": 2, "questions_per_step": 2, "rollouts_per_question": 8, "max_completion_tokens": 64,
        "learning_rate": 1e-4, "schedule": "constant", "micro_batch": 16,
    },
}  # fmt: skip
CONFIG = "resources:\n  podium:\n    config:\n      recipe: tiny\n"
DEFAULT = CONFIG.replace("tiny", "quickstart")
DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@pytest.fixture
def served(
    tmp_path: Path,
    make: Callable[[Path], Workspace],
    serve: Callable[[Workspace], AbstractContextManager[Any]],
    chromium: object,
) -> Iterator[Any]:
    workspace = make(tmp_path / "project")
    (workspace.config / "recipes" / "tiny.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    gate = {"min_format_compliance": 0.0, "min_gain_over_best_worker": -1.0}
    (workspace.config / "promotion.yaml").write_text(yaml.safe_dump(gate), encoding="utf-8")
    with serve(workspace) as servers:
        yield servers


def wait(reached: Callable[[], object], seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.5)


def test_a_price_edited_while_a_life_runs(served: Any, tab: Any) -> None:
    workspace, page = served.workspace, tab.page
    run_id = launch(served, tab, "lifecycle")
    with dg.DagsterInstance.from_config(str(workspace.dagster_home)) as instance:

        def status(run_id: str) -> dg.DagsterRunStatus:
            run = instance.get_run_by_id(run_id)
            assert run is not None
            return run.status

        wait(lambda: list(workspace.runs.glob("*/run.json")) or status(run_id) in DONE)
        assert status(run_id) == dg.DagsterRunStatus.STARTED
        edit_price(workspace)
        wait(lambda: status(run_id) in DONE)
        page.goto(f"{served.dagster}/runs/{run_id}")
        page.get_by_text("Success", exact=True).first.wait_for()
        tab.shoot("lifecycle-after-an-edit")
        assert status(run_id) == dg.DagsterRunStatus.SUCCESS
        calls, trained = booked(workspace), set(workspace.runs.iterdir())

        page.goto(f"{served.dagster}/locations/podium/sensors/pool_changed")
        page.locator("label[class*=formatSwitch]").first.click()
        wait(lambda: instance.get_runs(dg.RunsFilter(job_name="costs")))
        [costs] = instance.get_runs(dg.RunsFilter(job_name="costs"))
        wait(lambda: status(costs.run_id) in DONE)
        assert status(costs.run_id) == dg.DagsterRunStatus.SUCCESS
        page.goto(f"{served.dagster}/runs/{costs.run_id}")
        page.get_by_text("Success", exact=True).first.wait_for()
        tab.shoot("costs-after-an-edit")
        assert booked(workspace) == calls
        assert set(workspace.runs.iterdir()) == trained
        assert len(instance.get_runs(dg.RunsFilter(job_name="lifecycle"))) == 1

        # Parts of the same life: everything that they need is there, so nobody is asked and nothing trained again.
        for job in ("train", "evaluate"):
            run_id = launch(served, tab, job)
            wait(lambda run_id=run_id: status(run_id) in DONE)
            assert status(run_id) == dg.DagsterRunStatus.SUCCESS
            page.get_by_text("Success", exact=True).first.wait_for()
            tab.shoot(job)
        assert booked(workspace) == calls
        assert set(workspace.runs.iterdir()) == trained
    page.goto(f"{served.dagster}/jobs")
    for job in JOBS:
        page.locator(f"a[href$='/jobs/{job}']").get_by_text(job, exact=True).wait_for()
    tab.shoot("jobs")


def launch(served: Any, tab: Any, job: str) -> str:
    """Launch a job of the tiny recipe from its launchpad; the run's id, with its page open."""
    page = tab.page
    tab.visit(f"{served.dagster}/locations/podium/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    page.get_by_text("quickstart", exact=True).first.wait_for()
    assert editor.locator(".CodeMirror-line").all_inner_texts()[:-1] == DEFAULT.splitlines()
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(CONFIG)
    tab.shoot(f"launchpad-{job}")
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_url("**/runs/*")
    return urlsplit(page.url).path.rpartition("/")[2]


def edit_price(workspace: Workspace) -> None:
    file = workspace.config / "pools" / "quickstart.yaml"
    pool = yaml.safe_load(file.read_text(encoding="utf-8"))
    pool["workers"][0]["price"]["output"] *= 10
    file.write_text(yaml.safe_dump(pool), encoding="utf-8")


def booked(workspace: Workspace) -> int:
    return sum(spent.calls for spent in Ledger(workspace.ledger).by_run().values())
