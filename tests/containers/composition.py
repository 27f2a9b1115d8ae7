"""compose.yaml, run by podman-compose under a name and on ports of its own.

podman before 4.6 starts containers without waiting for `depends_on`, and without systemd it does not check their health
by itself: both are done here, from the file's own conditions and commands.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.containers.images import podman
from tests.team.servers import free_port, until

ROOT = Path(__file__).parents[2]
NAME = "podium-containers"
STARTS_S = 900.0
"""A safeguard: a busy machine imports slowly."""
PUBLISHED = ("webserver", "mlflow", "serve")


class Composition:
    """A context manager; `say` receives each command with its seconds. The end removes containers and volumes."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self.token, self.ports = secrets.token_hex(16), {name: free_port() for name in PUBLISHED}
        text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
        self._services: dict[str, Any] = yaml.safe_load(text)["services"]
        for name, port in self.ports.items():
            [published] = self._services[name]["ports"]
            host, _, inside = published.rpartition(":")
            text = text.replace(published, f"{host.rpartition(':')[0]}:{port}:{inside}")
        (folder / "compose.yaml").write_text(text, encoding="utf-8")
        shutil.copytree(ROOT / "config" / "team", folder / "config" / "team")
        names = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY")
        values = {name: secrets.token_hex(12) for name in names} | {"PODIUM_SERVE_TOKENS": self.token}
        lines = "".join(f"{name}={value}\n" for name, value in values.items())
        (folder / ".env").write_text(lines, encoding="utf-8")

    def __enter__(self) -> Composition:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--timeout", "10")

    def compose(self, *arguments: str) -> str:
        """Run podman-compose. Raises `AssertionError` with its output if it fails."""
        began = time.monotonic()
        command = ["podman-compose", "--project-name", NAME, "--profile", "serve", *arguments]
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, check=False, timeout=STARTS_S
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}"
        self._say(f"{' '.join(command)}: {time.monotonic() - began:.0f} s")
        return done.stdout

    def start(self, *names: str) -> None:
        """Create and start the services, each after those that its `depends_on` names; wait for their health."""
        for name in names:
            self.compose("up", "--detach", "--no-build", "--no-deps", name)
            self.ready(name)

    def ready(self, name: str) -> None:
        """Wait until the service is healthy by its own check, or ended with success if it runs once."""
        began = time.monotonic()
        if self._services[name].get("restart") == "no":
            until(lambda: self._state(name)["Status"] == "exited", f"{name} has ended", STARTS_S, 1)
            assert self._state(name)["ExitCode"] == 0, self.log(name)
        elif "healthcheck" in self._services[name]:
            until(lambda: self._healthy(name), f"{name} is healthy", STARTS_S, 1)
        else:
            until(lambda: bool(self._state(name)["Running"]), f"{name} runs", STARTS_S, 1)
        self._say(f"{name} is ready: {time.monotonic() - began:.0f} s")

    def execute(self, name: str, *command: str, stdin: Path | None = None) -> str:
        """Run a command in the service's container; return its output."""
        arguments = ["podman", "exec", *(["--interactive"] if stdin else []), self.container(name), *command]
        with (stdin or Path(os.devnull)).open("rb") as read:
            done = subprocess.run(
                arguments, stdin=read, capture_output=True, text=True, check=False, timeout=STARTS_S
            )  # fmt: skip
        assert done.returncode == 0, f"{name}: {' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    def kill(self, name: str) -> None:
        """Kill the first process of the service's container, and with it all others, as a crash does."""
        before = self._state(name)
        os.kill(int(before["Pid"]), 9)
        until(lambda: self._state(name)["Pid"] not in (0, before["Pid"]), f"{name} is back", STARTS_S, 1)
        self._say(f"{name} was killed and runs again")

    def log(self, name: str) -> str:
        command = ["podman", "logs", "--tail", "60", self.container(name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    @staticmethod
    def container(name: str) -> str:
        return f"{NAME}_{name}_1"

    def _healthy(self, name: str) -> bool:
        command = ["podman", "healthcheck", "run", self.container(name)]
        return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0

    def _state(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(podman("inspect", self.container(name)))[0]["State"]
        return state
