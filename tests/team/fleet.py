"""A team's Dagster on this machine: a daemon and a code server that executes runs, on real services."""

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
import psutil
import yaml
from dagster._core.instance.ref import InstanceRef

from ops.core.workspace import Workspace
from tests.command import PODIUM
from tests.team.servers import Process, free_port, until

PATIENCE_S = 2400.0
LONG_S = 1.0
"""Seconds between two looks at a wait of minutes: each opens connections to Postgres, a process of its own each."""
PROGRAMS = Path(sys.executable).parent
"""Dagster's programs, called as a person calls them."""


def listens(port: int) -> bool:
    from dagster._core.errors import DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient

    try:
        return bool(DagsterGrpcClient(port=port, host="127.0.0.1").ping("x"))
    except DagsterUserCodeUnreachableError:
        return False


class Fleet:
    """A context manager for the team's processes. `engines` are environment variables."""

    def __init__(self, workspace: Workspace, folder: Path, engines: Mapping[str, str]) -> None:
        self.workspace, self.folder = workspace, folder
        self._home = folder / "home"
        self._home.mkdir(parents=True)
        self._servers = workspace.config / "team" / "workspace.yaml"
        self.port = free_port()
        self.environment = {
            **os.environ, **engines,
            "PODIUM_TEAM": "1", "PODIUM_ROOT": str(workspace.root), "DAGSTER_HOME": str(self._home),
            "PODIUM_EXECUTOR": "multiprocess",
            "DVC_SITE_CACHE_DIR": str(folder / "dvc"), "PYTHONPATH": str(workspace.root),
            "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self._settings()
        self._load_from()
        self.server: Process | None = None
        self.daemon: Process | None = None

    def __enter__(self) -> Fleet:
        self.podium("team", "setup")
        self.server = self._serve()
        until(lambda: listens(self.port), f"the code server at {self.port} answers")
        self.start_daemon()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.daemon, self.server):
            if process is not None:
                process.stop(signal.SIGKILL)
        self._end_orphans()

    def start_daemon(self) -> None:
        command = [str(PROGRAMS / "dagster-daemon"), "run", "-w", str(self._servers)]
        self.daemon = Process(command, self.folder / "daemon.log", self.environment)

    def podium(self, *arguments: str, status: int = 0) -> str:
        """Run a command of `podium` on this volume, which must end with that exit status; return its output."""
        done = subprocess.run(
            [*PODIUM, *arguments], cwd=self.workspace.root, env=self.environment,
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    def step_process(self, run_id: str, step: str) -> psutil.Process:
        """Return the process that executes that step of the run."""
        with self.instance() as instance:
            started = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED)
            [pid] = [
                entry.dagster_event.engine_event_data.metadata["pid"].value
                for entry in started
                if entry.dagster_event is not None and entry.dagster_event.step_key == step
            ]
        return psutil.Process(int(str(pid)))

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        os.environ["PODIUM_DAGSTER_URL"] = self.environment["PODIUM_DAGSTER_URL"]
        with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(self._home))) as instance:
            yield instance

    def start(self, recipe: str, job: str = "lifecycle") -> str:
        """Run `podium team start`; return the run's id."""
        return self.podium("team", "start", recipe, "--job", job, "--yes").split()[1].rstrip(":")

    def finished(self, run_id: str) -> list[dg.RunRecord]:
        """Wait for the end of the run or of its retry; return the attempts, oldest first."""
        with self.instance() as instance:

            def attempts() -> list[dg.RunRecord]:
                again = instance.get_run_records(dg.RunsFilter(tags={"dagster/root_run_id": run_id}))
                return [*instance.get_run_records(dg.RunsFilter(run_ids=[run_id])), *reversed(again)]

            def ended() -> bool:
                run = attempts()[-1].dagster_run
                return run.is_success or (run.is_finished and run.tags.get("dagster/will_retry") == "false")

            until(ended, f"run {run_id} has ended", PATIENCE_S, LONG_S)
            last = attempts()[-1].dagster_run
            said = [entry.message for entry in instance.all_logs(last.run_id)]
            assert last.status == dg.DagsterRunStatus.SUCCESS, said
            return attempts()

    def reached(self, run_id: str, step: str, event: dg.DagsterEventType = dg.DagsterEventType.STEP_START) -> bool:
        """Return whether that step of the run has started, or had another event."""
        with self.instance() as instance:
            return step in {entry.step_key for entry in instance.all_logs(run_id, of_type=event)}

    # ── inside ───────────────────────────────────────────────────────────────

    def _serve(self) -> Process:
        command = [
            *(str(PROGRAMS / "dagster"), "api", "grpc", "-m", "pipelines.definitions"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--location-name", "podium"),
        ]
        return Process(command, self.folder / "server.log", self.environment)

    def _settings(self) -> None:
        """Write the team's own dagster.yaml with shorter time-outs."""
        file = self.workspace.config / "team" / "dagster.yaml"
        settings: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings["run_monitoring"]["poll_interval_seconds"] = 2
        (self._home / "dagster.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _load_from(self) -> None:
        """Write the team's own workspace file with the code server's address."""
        text = self._servers.read_text(encoding="utf-8")
        text = text.replace("host: code", "host: 127.0.0.1").replace("port: 4000", f"port: {self.port}")
        self._servers.write_text(text, encoding="utf-8")

    def _end_orphans(self) -> None:
        for process in psutil.process_iter(["environ", "pid"]):
            if (process.info["environ"] or {}).get("DAGSTER_HOME") == str(self._home):
                process.kill()
