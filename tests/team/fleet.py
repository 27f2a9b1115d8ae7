"""A team's Dagster on this machine: a daemon and several code servers that execute runs, over real engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.instance.ref import InstanceRef

from ops.core.workspace import Workspace
from tests.command import PODIUM
from tests.team.servers import Process, free_port, until

PATIENCE_S = 2400.0
PROGRAMS = Path(sys.executable).parent
"""Dagster's, as a person calls them."""


def listens(port: int) -> bool:
    from dagster._core.errors import DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient

    try:
        return bool(DagsterGrpcClient(port=port, host="127.0.0.1").ping("x"))
    except DagsterUserCodeUnreachableError:
        return False


class Fleet:
    """A context manager; `machines` code servers, of which the first also tells what there is.

    `engines` are environment variables; `at_once` is how many runs the queue lets out.
    """

    def __init__(
        self, workspace: Workspace, folder: Path, engines: Mapping[str, str], machines: int, at_once: int
    ) -> None:
        self.workspace, self.folder = workspace, folder
        self._home = folder / "home"
        self._home.mkdir(parents=True)
        self._servers = workspace.config / "team" / "workspace.yaml"
        self.ports = [free_port() for _ in range(machines)]
        self.environment = {
            **os.environ, **engines,
            "PODIUM_TEAM": "1", "PODIUM_ROOT": str(workspace.root), "DAGSTER_HOME": str(self._home),
            "PODIUM_RUN_WORKERS": ",".join(f"127.0.0.1:{port}" for port in self.ports),
            "DVC_SITE_CACHE_DIR": str(folder / "dvc"), "PYTHONPATH": str(workspace.root),
            "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self._settings(at_once)
        self._load_from()
        self.machines: list[Process] = []
        self.daemon: Process | None = None

    def __enter__(self) -> Fleet:
        self.podium("team", "setup")
        self.machines = [self._machine(port) for port in self.ports]
        for port in self.ports:
            until(lambda port=port: listens(port), f"the code server at {port} answers")  # type: ignore[misc]
        self.start_daemon()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.daemon, *self.machines):
            if process is not None:
                process.stop(signal.SIGKILL)
        self._end_orphans()

    def start_daemon(self) -> None:
        command = [str(PROGRAMS / "dagster-daemon"), "run", "-w", str(self._servers)]
        self.daemon = Process(command, self.folder / "daemon.log", self.environment)

    def podium(self, *arguments: str, status: int = 0) -> str:
        """A person's command on this volume, which ends with that exit status; what it printed."""
        done = subprocess.run(
            [*PODIUM, *arguments], cwd=self.workspace.root, env=self.environment,
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    def kill_machine(self, number: int) -> None:
        """A power cut: the server and every run on it are gone at once."""
        group = self.machines[number].popen.pid
        os.killpg(group, signal.SIGKILL)
        self.machines[number].popen.wait(240)

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        os.environ["PODIUM_DAGSTER_URL"] = self.environment["PODIUM_DAGSTER_URL"]
        with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(self._home))) as instance:
            yield instance

    def start(self, recipe: str, *stages: str) -> str:
        """`podium team start`; the backfill's id."""
        asked = [argument for stage in stages for argument in ("--stage", stage)]
        return self.podium("team", "start", recipe, *asked).split()[1].rstrip(":")

    def finished(self, named: str) -> list[dg.RunRecord]:
        """Wait for the backfill's end, and give its runs."""
        states = {BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.COMPLETED_FAILED, BulkActionStatus.FAILED}
        with self.instance() as instance:

            def ended() -> bool:
                backfill = instance.get_backfill(named)
                return backfill is not None and backfill.status in states

            until(ended, f"backfill {named} has ended", PATIENCE_S)
            backfill = instance.get_backfill(named)
            assert backfill is not None and backfill.status == BulkActionStatus.COMPLETED_SUCCESS, backfill.error
            return list(instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": named})))

    def running(self) -> list[dg.DagsterRun]:
        with self.instance() as instance:
            return list(instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])))

    # ── inside ───────────────────────────────────────────────────────────────

    def _machine(self, port: int) -> Process:
        command = [
            *(str(PROGRAMS / "dagster"), "api", "grpc", "-m", "pipelines.definitions"),
            *("--host", "127.0.0.1", "--port", str(port), "--location-name", "podium"),
        ]
        return Process(command, self.folder / f"machine-{port}.log", self.environment)

    def _settings(self, at_once: int) -> None:
        """The team's own file, with a shorter patience."""
        file = self.workspace.config / "team" / "dagster.yaml"
        settings: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings["concurrency"]["runs"]["max_concurrent_runs"] = at_once
        settings["run_launcher"]["config"] = {"missed_checks": 2}
        settings["run_monitoring"]["poll_interval_seconds"] = 2
        (self._home / "dagster.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _load_from(self) -> None:
        """The team's own file, with the first machine's address."""
        text = self._servers.read_text(encoding="utf-8")
        text = text.replace("host: code", "host: 127.0.0.1").replace("port: 4000", f"port: {self.ports[0]}")
        self._servers.write_text(text, encoding="utf-8")

    def _end_orphans(self) -> None:
        import psutil

        for process in psutil.process_iter(["environ", "pid"]):
            if (process.info["environ"] or {}).get("DAGSTER_HOME") == str(self._home):
                process.kill()
