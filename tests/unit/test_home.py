"""One pipeline run at a time, runs and trainers of killed processes, and terminal output."""

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from ops.core.errors import PodiumError
from ops.core.processes import name_of, one_at_a_time
from ops.core.workspace import Workspace
from ops.training.run import processes
from ops.workers.client import Counts
from pipelines import home
from pipelines.dev import free_port
from pipelines.quiet import QUIET
from pipelines.terminal import Terminal

HOLD = """
import sys, time
from pathlib import Path
from ops.core.workspace import Workspace
from ops.core.processes import one_at_a_time
with one_at_a_time(Workspace(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""
WATCH = """
import time
from ops.training.run import processes
processes.watch()
print("up", flush=True)
time.sleep(60)
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a separate Python process and wait for its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline()
    return process


def test_two_lifecycles_of_a_checkout_exclude_each_other_and_a_killed_one_holds_nothing(
    tmp_path: Path,
) -> None:
    workspace = Workspace(tmp_path)
    workspace.state.mkdir()
    other = python(HOLD, str(tmp_path))
    with pytest.raises(PodiumError, match="another pipeline run"), one_at_a_time(workspace):
        pass
    other.kill()
    other.wait(240)
    with one_at_a_time(workspace), one_at_a_time(workspace):  # the command and its run
        assert (workspace.state / "lifecycle.lock").exists()


def test_a_run_of_a_killed_process_is_marked_failed_and_one_of_a_running_process_is_not(tmp_path: Path) -> None:
    @dg.job
    def nothing() -> None:
        pass

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        gone = {home.PROCESS: "1:0.01"}
        dead = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED, tags=gone)
        alive = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED, tags=home.this_process())
        foreign = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)
        assert [run.run_id for run in home.fail_orphaned_runs(instance)] == [dead.run_id]
        statuses = {run.run_id: run.status for run in instance.get_runs()}
    assert statuses[dead.run_id] == dg.DagsterRunStatus.FAILURE
    assert statuses[alive.run_id] == statuses[foreign.run_id] == dg.DagsterRunStatus.STARTED


def test_prepare_makes_the_instance_and_silences_every_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT", *QUIET):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    monkeypatch.setenv("DO_NOT_TRACK", "mine")
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    home.prepare(Workspace(tmp_path))
    assert os.environ["DAGSTER_HOME"] == str(tmp_path / ".podium" / "dagster")
    assert os.environ["DVC_NO_ANALYTICS"] == "true"
    assert os.environ["DO_NOT_TRACK"] == "mine"
    with dg.DagsterInstance.get() as instance:
        assert instance.telemetry_enabled is False


def test_a_trainer_ends_with_the_process_that_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = name_of(parent.pid)
    trainer = python(WATCH, **{processes.PARENT: name})
    parent.kill()
    parent.wait(240)
    assert trainer.wait(timeout=20) == 143


def test_a_trainer_without_a_watched_process_runs_on() -> None:
    trainer = python(WATCH, **{processes.PARENT: ""})
    with pytest.raises(subprocess.TimeoutExpired):
        trainer.wait(timeout=1.5)
    trainer.kill()
    trainer.wait(240)


def test_the_terminal_shows_steps_calls_and_failed_checks() -> None:
    @dg.asset
    def numbers(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        terminal.progress(context)(1, 2, "half")
        terminal.calls(context, Counts(live=3, cached=4, usd=0.5))
        return dg.MaterializeResult()

    @dg.asset_check(asset=numbers)
    def even() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description="3 [sic] is odd")

    @dg.asset_check(asset=numbers)
    def small() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description="3 is not small")

    out = io.StringIO()
    terminal = Terminal(Console(file=out, width=100))
    definitions = dg.Definitions(assets=[numbers], asset_checks=[even, small], loggers={"terminal": terminal.logger()})
    with terminal:
        definitions.resolve_implicit_global_asset_job_def().execute_in_process(run_config={"loggers": {"terminal": {}}})
    shown = out.getvalue()
    assert "✓ numbers" in shown
    assert "3 calls, 4 cached, $0.50" in shown
    assert "✗ even: 3 [sic] is odd" in shown
    assert "! small: 3 is not small" in shown
    assert terminal.total == Counts(live=3, cached=4, usd=0.5)


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wished = taken.getsockname()[1]
        with free_port(wished) as first, free_port(wished) as second:
            assert wished < first < second < wished + 100, "of two that start at once each has its own"


def test_an_instances_settings_are_replaced_whole_and_only_when_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODIUM_TEAM", raising=False)
    workspace, settings = Workspace(tmp_path), tmp_path / "dagster.yaml"
    settings.write_text("nux: {enabled: false}\n", encoding="utf-8")
    home.prepare(workspace)
    kept = workspace.dagster_home / "dagster.yaml"
    before = kept.stat()
    home.prepare(workspace)  # while a daemon may read it
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    settings.write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    home.prepare(workspace)
    assert kept.read_text(encoding="utf-8") == settings.read_text(encoding="utf-8")
    assert kept.stat().st_ino != before.st_ino, "processes that were reading the old one keep it"


def test_a_team_has_settings_of_its_own_and_a_home_on_each_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, own = Workspace(tmp_path / "volume"), tmp_path / "machine"
    (workspace.config / "team").mkdir(parents=True)
    (workspace.config / "team" / "dagster.yaml").write_text("nux: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("PODIUM_TEAM", "1")
    monkeypatch.setenv("DAGSTER_HOME", str(own))
    home.prepare(workspace)
    assert (own / "dagster.yaml").is_file() and not workspace.dagster_home.exists()
    assert os.environ["DAGSTER_HOME"] == str(own)
