"""A server as a test holds it: laid out, started, asked, told to end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from ops.config import Pool, dump_settings
from ops.core.atomic import write_text
from tests.serving.script import card_of

ROOT = Path(__file__).resolve().parents[2]
STARTS_S, ENDS_S = 180.0, 60.0
"""A safeguard: a busy machine imports slowly."""


class Running:
    """A context manager around the server's process."""

    def __init__(self, folder: Path, pool: Pool, command: Sequence[str] | None = None, **environment: str) -> None:
        self.folder, self._pool = folder, pool
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "server.log"
        self._command = command or (sys.executable, "-m", "tests.serving.server", str(folder))
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}

    def settings(self, **values: Any) -> Self:
        """Write serving.yaml and the pool; before the start."""
        (self.folder / "serving.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        (self.folder / "pool.yaml").write_text(dump_settings(self._pool), encoding="utf-8")
        return self

    def version(
        self,
        name: str,
        *completions: str,
        seconds: float = 0.0,
        by_offer: dict[str, str] | None = None,
        prompt_limit: int | None = None,
        **settings: Any,
    ) -> Self:
        """Lay a version out."""
        folder = self.folder / "versions" / name
        folder.mkdir(parents=True)
        card_of(self._pool).write(folder)
        script = {"completions": completions, "seconds": seconds, "by_offer": by_offer,
                  "prompt_limit": prompt_limit}  # fmt: skip
        (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        return self

    def champion(self, name: str) -> Self:
        """Move the alias."""
        write_text(self.folder / "current", name)
        return self

    def __enter__(self) -> Self:
        with self.log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=out, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + STARTS_S
        while not (ready := re.search(r"at (http://\S+)/v1", self.text)):
            assert self.process.poll() is None and time.monotonic() < end, self.text
            time.sleep(0.1)
        self.url = ready[1]
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()

    @property
    def text(self) -> str:
        """What it printed."""
        return self.log.read_text(encoding="utf-8")

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        """Tell it to end; its exit status."""
        self.process.send_signal(how)
        try:
            return self.process.wait(ENDS_S)
        finally:
            self.process.kill()

    def metric(self, name: str, **labels: str) -> float:
        """One number of /metrics; 0 where it is not there."""
        page = httpx.get(f"{self.url}/metrics", timeout=60, trust_env=False).raise_for_status().text
        total = 0.0
        for line in page.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{key}="{said}"' in head for key, said in labels.items()):
                total += float(value)
        return total

    def version_in_service(self) -> str:
        """Of the model that is served now."""
        model = httpx.get(f"{self.url}/v1/models/conductor", timeout=60, trust_env=False).raise_for_status().json()
        return str(model["podium"]["version"])

    def until_version(self, name: str) -> None:
        """Wait until it is served."""
        end = time.monotonic() + STARTS_S
        while self.version_in_service() != name:
            assert time.monotonic() < end, self.text
            time.sleep(0.1)
