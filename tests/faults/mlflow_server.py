"""A real MLflow server on loopback that a test can kill and start again on the same port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import httpx

PATIENCE_S = 180.0


class MlflowServer:
    """`mlflow server` over a SQLite file and a folder of artifacts, which it serves itself."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._database = store or folder / "mlflow.db"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start, and return when it answers."""
        self._log = (self.folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
                *("--workers", "1", "--backend-store-uri", f"sqlite:///{self._database}"),
                *("--artifacts-destination", str(self.folder / "artifacts"), "--serve-artifacts"),
            ],
            cwd=self.folder, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
            | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # seven processes that this test does not need
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL for it and its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(240)
            self._process = None
        if self._log is not None:
            self._log.close()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).is_success
        except httpx.HTTPError:
            return False


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
