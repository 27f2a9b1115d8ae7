"""A person launches a pipeline run and edits a price while it runs; the pages then show the sensor's ticks, the
grids of partitions, the curves of the training. One run serves all tests of this file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest
import yaml

from ops.alerts.notify import load_notices
from ops.benchmarks.registry import BENCHMARKS
from ops.config import load_pool
from ops.core.workspace import Workspace
from ops.release import mlflow_store
from ops.spending.ledger import Ledger
from ops.training.run.tracking import EXPERIMENT as TRAINING
from pipelines.lifecycle import JOBS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

TRAINED = ("math500", "mmlu", "rlpr", "livecodebench")
RECIPE = {
    "name": "tiny",
    "pool": "quickstart",
    "benchmarks": {name: {"train": 24, "test": 4} for name in TRAINED},
    "curation": {"per_domain": 6, "shortlist_factor": 1.25, "near_duplicate_jaccard": 1.0},
    "prompting": {"style": "compact", "few_shots": "none"},
    "policy": {"kind": "scratch", "vocabulary": 800, "hidden": 96, "layers": 2, "heads": 4, "max_tokens": 384},
    "cold_start": {"steps": 60, "batch": 16, "learning_rate": 3e-3, "least_valid": 0},
    "grpo": {
        "steps": 4, "questions_per_step": 2, "rollouts_per_question": 8, "max_completion_tokens": 64,
        "learning_rate": 1e-4, "schedule": "constant", "micro_batch": 16,
    },
}  # fmt: skip
EMPTY = "about:blank"
"""A page of a run in progress is drawn without end, and takes a core from the run."""
CONFIG = "resources:\n  podium:\n    config:\n      recipe: tiny\n"
DEFAULT = CONFIG.replace("tiny", "quickstart")
DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class Launched(NamedTuple):
    """A pipeline run that a person launched, with a price edited while it ran."""

    served: Any
    calls: int
    """What it booked."""
    trained: set[Path]
    """The folders of its training runs."""

    @property
    def workspace(self) -> Workspace:
        workspace: Workspace = self.served.workspace
        return workspace

    @contextmanager
    def history(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.from_config(str(self.workspace.dagster_home)) as instance:
            yield instance

    def succeeded(self, instance: dg.DagsterInstance, run_id: str) -> None:
        wait(lambda: status(instance, run_id) in DONE)
        assert status(instance, run_id) == dg.DagsterRunStatus.SUCCESS

    def paid_nothing_more(self) -> None:
        assert booked(self.workspace) == self.calls
        assert set(self.workspace.runs.iterdir()) == self.trained


@pytest.fixture(scope="module")
def launched(
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[Path], Workspace],
    serve: Callable[[Workspace], AbstractContextManager[Any]],
    first_tab: Any,
) -> Iterator[Launched]:
    workspace = make(tmp_path_factory.mktemp("launched") / "project")
    (workspace.config / "recipes" / "tiny.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    gate = {"min_format_compliance": 0.0, "min_gain_over_best_worker": -1.0}
    (workspace.config / "promotion.yaml").write_text(yaml.safe_dump(gate), encoding="utf-8")
    with serve(workspace) as served:
        run_id = launch(served, first_tab, "lifecycle")
        with dg.DagsterInstance.from_config(str(workspace.dagster_home)) as instance:
            wait(lambda: list(workspace.runs.glob("*/run.json")) or status(instance, run_id) in DONE)
            assert status(instance, run_id) == dg.DagsterRunStatus.STARTED
            edit_price(workspace)
            wait(lambda: status(instance, run_id) in DONE)
            assert status(instance, run_id) == dg.DagsterRunStatus.SUCCESS
        first_tab.page.goto(f"{served.dagster}/runs/{run_id}")
        first_tab.page.get_by_text("Success", exact=True).first.wait_for()
        first_tab.shoot("lifecycle-after-an-edit")
        first_tab.page.goto(EMPTY)  # its page would ask a server that has ended
        yield Launched(served, booked(workspace), set(workspace.runs.iterdir()))


def wait(reached: Callable[[], object], seconds: float = 1800) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.5)


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def test_ticks_say_which_run_they_ask_for_and_why_they_skip(launched: Launched, tab: Any) -> None:
    page, sensor = tab.page, f"{launched.served.dagster}/locations/podium/sensors/pool_changed"
    rows, dialog = page.locator("table[class*=TickHistory] tbody tr"), page.get_by_role("dialog")
    tab.visit(sensor)
    page.locator("label[class*=formatSwitch]").first.click()
    page.goto(EMPTY)
    with launched.history() as instance:
        wait(lambda: instance.get_runs(dg.RunsFilter(job_name="retraining")))
        [costs] = instance.get_runs(dg.RunsFilter(job_name="retraining"))
        assert costs.tags["plan"].startswith("another price: ")
        page.goto(sensor)
        requested = rows.filter(has_text="1 run requested")
        requested.get_by_text(costs.run_id[:8]).wait_for()
        assert requested.count() == 1
        tab.shoot("sensor-ticks")
        page.goto(EMPTY)
        launched.succeeded(instance, costs.run_id)
        wait(lambda: "the pool is unchanged" in newest_reason(instance))
        assert len(instance.get_runs(dg.RunsFilter(job_name="retraining"))) == 1
        succeeded = [dg.DagsterRunStatus.SUCCESS]
        assert len(instance.get_runs(dg.RunsFilter(job_name="lifecycle", statuses=succeeded))) == 1
    launched.paid_nothing_more()
    page.goto(sensor)
    rows.first.get_by_text("0 runs requested").last.click()
    dialog.get_by_text("the pool is unchanged").wait_for()
    assert "Skip reason:" in dialog.inner_text()
    tab.shoot("sensor-skips")
    page.goto(f"{launched.served.dagster}/runs/{costs.run_id}")
    page.get_by_text("Success", exact=True).first.wait_for()
    tab.shoot("costs-after-an-edit")


def newest_reason(instance: dg.DagsterInstance) -> str:
    """Why the sensor's last tick asked for nothing."""
    [state] = [each for each in instance.all_instigator_state() if each.name == "pool_changed"]
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    return str(ticks[0].skip_reason) if ticks else ""


def test_a_grid_shows_what_is_there_what_is_missing_and_what_failed(launched: Launched, tab: Any) -> None:
    page, workers = tab.page, load_pool(launched.workspace.config, "quickstart").names
    tab.visit(f"{launched.served.dagster}/assets/worker_responses?view=partitions")
    page.get_by_text(f"Materialized ({len(TRAINED)})").wait_for()
    page.get_by_title("rlpr", exact=True).first.click()
    page.get_by_text("Materialized", exact=True).first.wait_for()
    page.get_by_text("accuracy in %").first.wait_for()
    for name in workers:
        page.get_by_text(name, exact=True).first.wait_for()
    tab.shoot("grid-worker-responses")

    page.goto(f"{launched.served.dagster}/assets/benchmark_scores?view=partitions")
    page.get_by_text(f"Materialized ({len(TRAINED)})").wait_for()
    page.get_by_text(f"Missing ({len(BENCHMARKS) - len(TRAINED)})").wait_for()
    page.get_by_title("aime25", exact=True).first.click()
    page.get_by_text("No metadata entries").wait_for()
    tab.shoot("grid-missing")

    # The recipe that the launchpad proposes has not been trained here.
    page.get_by_role("button", name="Materialize…").click()
    page.get_by_role("button", name="Launch 1 run").click()
    with launched.history() as instance:
        wait(lambda: instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])))
    wait(
        lambda: load_notices(launched.workspace, 1)[0].notice.title == "benchmark_scores failed"
    )  # the daemon tells of it
    page.goto(f"{launched.served.dagster}/assets/benchmark_scores?view=partitions")
    page.get_by_text("Failed (1)").wait_for()
    page.get_by_text(f"Missing ({len(BENCHMARKS) - len(TRAINED) - 1})").wait_for()
    page.get_by_title("aime25", exact=True).first.click()
    page.get_by_text("failed, and did not materialize this asset").wait_for()
    tab.shoot("grid-failed")


def test_mlflow_draws_the_curves_of_the_training_and_lists_its_version(launched: Launched, tab: Any) -> None:
    page, mlflow, [run] = tab.page, launched.served.mlflow, launched.trained
    tab.visit(f"{mlflow}/#/experiments")
    page.get_by_text("Model training", exact=True).click()
    page.get_by_role("link", name=TRAINING, exact=True).first.click()
    page.get_by_role("link", name=run.name).first.click()
    page.get_by_role("tab", name="Model metrics").click()
    page.get_by_placeholder("Search metric charts").fill("reward")
    for name in ("0 main/reward", "trl/reward_std"):
        chart = page.get_by_test_id("experiment-view-compare-runs-card").filter(has=page.get_by_title(name, exact=True))
        chart.scroll_into_view_if_needed()
        line = chart.locator("path.js-line").first  # drawn a second time beneath, for the mouse
        line.wait_for(state="attached")
        assert len(re.findall("[ML]", line.get_attribute("d"))) > 1, "a line has two points at least"
        chart.get_by_text(f"{run.name} ({name})").wait_for()
    tab.shoot("mlflow-curves")

    page.goto(f"{mlflow}/#/models/{mlflow_store.MODEL_NAME}")
    page.get_by_role("link", name="Version 1").wait_for()
    for text in ("@ champion", "promoted"):
        page.get_by_text(text).first.wait_for()
    tab.shoot("mlflow-model")


def test_existing_parts_of_a_pipeline_run_are_reused(launched: Launched, tab: Any) -> None:
    page = tab.page
    with launched.history() as instance:
        for job in ("train", "evaluate"):
            run_id = launch(launched.served, tab, job)
            launched.succeeded(instance, run_id)
            page.goto(f"{launched.served.dagster}/runs/{run_id}")
            page.get_by_text("Success", exact=True).first.wait_for()
            tab.shoot(job)
    launched.paid_nothing_more()
    page.goto(f"{launched.served.dagster}/jobs")
    for job in JOBS:
        page.locator(f"a[href$='/jobs/{job}']").get_by_text(job, exact=True).wait_for()
    tab.shoot("jobs")


def launch(served: Any, tab: Any, job: str) -> str:
    """Launch a job of the tiny recipe from its launchpad; the run's id, with an empty page."""
    page = tab.page
    tab.visit(f"{served.dagster}/locations/podium/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    page.get_by_text("quickstart", exact=True).first.wait_for()
    assert editor.locator(".CodeMirror-line").all_inner_texts()[:-1] == DEFAULT.splitlines()
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(CONFIG)
    tab.shoot(f"launchpad-{job}")
    with dg.DagsterInstance.from_config(str(served.workspace.dagster_home)) as instance:
        before = {run.run_id for run in instance.get_runs(dg.RunsFilter(job_name=job))}
        page.get_by_role("button", name="Launch Run").click()
        page.wait_for_url("**/runs/*")
        made = [run for run in instance.get_runs(dg.RunsFilter(job_name=job)) if run.run_id not in before]
        # On a busy machine one click has launched two runs, two seconds apart; the second waits in the queue.
        for again in made[:-1]:
            instance.report_run_canceled(again)
    page.goto(EMPTY)
    return made[-1].run_id


def edit_price(workspace: Workspace) -> None:
    file = workspace.config / "pools" / "quickstart.yaml"
    pool = yaml.safe_load(file.read_text(encoding="utf-8"))
    pool["workers"][0]["price"]["output"] *= 10
    file.write_text(yaml.safe_dump(pool), encoding="utf-8")


def booked(workspace: Workspace) -> int:
    return sum(spent.calls for spent in Ledger(workspace.ledger).by_run().values())
