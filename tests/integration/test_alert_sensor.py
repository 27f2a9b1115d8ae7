"""The sensor that reports failed runs: real runs in a real instance, one notice each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest

from assets.resources import Podium
from ops.alerts.notify import kept
from ops.core.errors import OverBudget, PodiumError
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.training.run.ending import INVALID_FIRST_STEP
from pipelines.alerts import alert_on_failure, the_same_command
from pipelines.definitions import definitions


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "alerts.yaml").write_text("ui_url: https://dagster.example.org/\n", encoding="utf-8")
    return Workspace(tmp_path)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as made:
        yield made


def failed_run(workspace: Workspace, instance: dg.DagsterInstance, error: Exception, **tags: str) -> str:
    """Make a run fail like one of Podium's assets, tick the sensor once, and return the run's id."""

    @dg.op
    def ask() -> None:
        try:
            raise error
        except PodiumError as cause:
            raise RuntimeError("the stage failed") from cause

    @dg.job
    def lifecycle() -> None:
        ask()

    result = lifecycle.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
    [event] = [event for event in result.all_events if event.is_failure and not event.is_step_event]
    context = dg.build_run_status_sensor_context(
        "alert_on_failure", event, instance, result.dagster_run, resources={}
    ).for_run_failure()
    alert_on_failure(Podium(root=str(workspace.root)))(context)
    return result.run_id


def refused() -> str:
    """Return the message of a cap as a trainer passes it on."""
    with TemporaryDirectory() as folder, pytest.raises(OverBudget) as error:
        Ledger(Path(folder) / "ledger.sqlite").reserve("run", 2.0, cap_usd=1.0)
    return str(error.value)


@pytest.mark.parametrize(
    ("error", "kind", "title"),
    [
        (PodiumError("config/x.yaml: field: is wrong. Correct it"), "failure", "lifecycle failed"),
        (OverBudget("stopped at the cap"), "budget", "lifecycle reached its budget"),
        (PodiumError(f"training failed: {refused()}"), "budget", "lifecycle reached its budget"),
        (PodiumError(f"{INVALID_FIRST_STEP}, before"), "failure", "lifecycle stopped in its first step of training"),
    ],
)
def test_a_failed_run_sends_one_alert(
    workspace: Workspace, instance: dg.DagsterInstance, error: Exception, kind: str, title: str
) -> None:
    run_id = failed_run(workspace, instance, error, **{"podium/recipe": "small, seed 3"})
    [entry] = kept(workspace, 9)
    assert (entry.notice.kind, entry.notice.title) == (kind, title)
    assert entry.notice.command == "podium run small --seed 3" and "Command: podium run" in entry.notice.body
    assert str(error) in entry.notice.text and run_id in entry.notice.text
    assert entry.notice.link == f"https://dagster.example.org/runs/{run_id}"


def test_a_run_that_begins_again_is_not_told(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    failed_run(workspace, instance, PodiumError("no"), **{"dagster/will_retry": "true"})
    assert kept(workspace, 9) == []


def test_it_is_on_from_the_start() -> None:
    sensor = definitions().resolve_sensor_def("alert_on_failure")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ("lifecycle", "podium run small --seed 3"),
        ("retraining", "podium retrain"),
        ("probes", "podium probe"),
        ("__ASSET_JOB", "podium dev, then Re-execute on the run's page"),
    ],
)
def test_the_command_that_goes_on_with_a_run(job: str, command: str) -> None:
    assert the_same_command(job, "small", "3") == command


def test_a_teams_run_goes_on_by_the_teams_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_TEAM", "1")
    assert the_same_command("lifecycle", "small", "3") == "podium team start small --seed 3"
