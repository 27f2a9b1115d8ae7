"""Serve the Dagster UI with its daemon, and MLflow, until Ctrl-C; their output goes to files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from filelock import FileLock, Timeout
from rich.console import Console

from ops.core.artifact_paths import repair_artifact_paths
from ops.core.workspace import Workspace
from ops.quality.suite import docs_folder
from pipelines.alerts import fail_orphaned_runs_and_alert
from pipelines.dagster_home import CODE_LOCATION, open_instance, prepare_home
from pipelines.termination import raise_on_sigterm

HOST = "127.0.0.1"
SHUTDOWN_GRACE_S = 15.0
"""Seconds that a server has to end after SIGTERM."""
SHOWN_LOG_LINES = 15
"""Number of log lines to show when a server has ended."""


def serve_interfaces(workspace: Workspace) -> int:
    """Serve until Ctrl-C or until a server ends. Returns that server's exit status, 0 after Ctrl-C."""
    console = Console(highlight=False)
    prepare_home(workspace)
    raise_on_sigterm()
    with open_instance(workspace) as instance:
        fail_orphaned_runs_and_alert(workspace, instance)
    with reserve_free_port(3000) as dagster_port, reserve_free_port(5000) as mlflow_port:
        return _serve(workspace, console, dagster_port, mlflow_port)


def _serve(workspace: Workspace, console: Console, dagster_port: int, mlflow_port: int) -> int:
    logs = workspace.state / "dev"
    servers = [_start(_dagster_command(workspace, dagster_port), workspace, logs / "dagster.log")]
    console.print(f"Dagster  http://{HOST}:{dagster_port}")
    if workspace.mlflow_uri.startswith("http"):
        console.print(f"MLflow   {workspace.mlflow_uri}")
    else:
        servers.append(_start(_mlflow_command(workspace, mlflow_port), workspace, logs / "mlflow.log"))
        console.print(f"MLflow   http://{HOST}:{mlflow_port}")
    if (pages := docs_folder(workspace) / "index.html").is_file():
        console.print(f"Checks   {pages.as_uri()}")
    console.print(f"Logs     {logs}", soft_wrap=True)
    console.print("Ctrl-C ends both.")
    try:
        while all(server.poll() is None for server in servers):
            time.sleep(0.5)
        ended = next(server for server in servers if server.returncode is not None)
        log = logs / ("dagster.log" if ended is servers[0] else "mlflow.log")
        console.print(f"A server has ended. The last lines of {log}:", style="red", soft_wrap=True)
        last = log.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:]
        console.print("\n".join(last), markup=False, soft_wrap=True)
        return ended.returncode
    except KeyboardInterrupt:
        return 0
    finally:
        _stop_servers(servers)


@contextmanager
def reserve_free_port(preferred: int) -> Iterator[int]:
    """Give `preferred`, or the first higher port that is free and not reserved by another call for this user."""
    for port in range(preferred, preferred + 100):
        lock = FileLock(Path(tempfile.gettempdir()) / f"podium-{os.getuid()}-port-{port}.lock", blocking=False)
        with suppress(Timeout), lock:
            if _is_free(port):
                yield port
                return
    raise OSError(f"no free port from {preferred} to {preferred + 99}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def make_code_location_arguments(workspace: Workspace) -> list[str]:
    """Return the arguments with which Dagster's commands load this code location under its name; only a file can set
    the name."""
    module = {"module_name": "pipelines.definitions", "location_name": CODE_LOCATION}
    file = workspace.dagster_home / "workspace.yaml"
    file.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}), encoding="utf-8")
    return ["--workspace", str(file)]


def _dagster_command(workspace: Workspace, port: int) -> list[str]:
    arguments = [*make_code_location_arguments(workspace), "--host", HOST, "--port", str(port)]
    return [sys.executable, "-m", "dagster", "dev", "--log-level", "warning", *arguments]


def _mlflow_command(workspace: Workspace, port: int) -> list[str]:
    (workspace.state / "mlflow").mkdir(parents=True, exist_ok=True)
    repair_artifact_paths(workspace)
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
        *("--uvicorn-opts", "--log-level warning"),
        *("--backend-store-uri", workspace.mlflow_uri),
        *("--default-artifact-root", str(workspace.mlflow_artifacts)),
    ]


def _start(command: Sequence[str], workspace: Workspace, log: Path) -> subprocess.Popen[bytes]:
    # A separate session: Ctrl-C reaches only this process, which then ends both servers in order. The instance's
    # folder: Dagster warns about a dagster.yaml in another current folder.
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            start_new_session=True,
            cwd=workspace.dagster_home,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _stop_servers(servers: Sequence[subprocess.Popen[bytes]]) -> None:
    for server in servers:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)  # including its children; uvicorn prints a traceback on SIGINT
    deadline = time.monotonic() + SHUTDOWN_GRACE_S
    for server in servers:
        try:
            server.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
