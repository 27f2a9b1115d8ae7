"""The disk of the cache or of the model store is full: nothing stored is lost, and with room again work continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.releases import empty_store

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs.bubblewrap  # which makes the small file system


def on_a_small_disk(tmp_path: Path, size: int, *words: str) -> dict[str, Any]:
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = ["bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(disk), "--die-with-parent"]
    program = [sys.executable, "-m", "tests.faults.full_store", str(disk), *words]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    ran = subprocess.run(
        [*inside, *program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=480
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_the_cache_is_on_a_full_disk(tmp_path: Path) -> None:
    seen = on_a_small_disk(tmp_path, 3_000_000, "cache")
    assert "full" in seen["said"], seen
    assert seen["ours"], "the message says what to do"
    assert seen["held"] == 10 + seen["kept"], "what was stored is stored"
    assert seen["after"] == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_store_is_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    seen = on_a_small_disk(tmp_path, 8_000_000, "artifacts", str(empty_store(tmp_path / "empty")))
    assert seen["kind"] != "NoneType", "nothing was full"
    assert seen["champion"] == "1", "the champion is who it was"
    assert (seen["done"], seen["then"]) == (True, "2")
