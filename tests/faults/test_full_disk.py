"""The disk of the cache or of the model store is full: nothing stored is lost, and with room again work continues.

`python -m tests.faults.test_full_disk cache|artifacts DISK [STORE]` fills a small file system, and prints a JSON line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.cache import ResponseCache
from ops.core.errors import PodiumError
from ops.core.response import Response
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from tests import needs
from tests.releases import YES, checkout, empty_store, version

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs.bubblewrap  # which makes the small file system
BALLAST = "ballast"


def on_a_small_disk(tmp_path: Path, size: int, what: str, *store: str) -> dict[str, Any]:
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = ["bwrap", "--dev-bind", "/", "/", "--size", str(size), "--tmpfs", str(disk), "--die-with-parent"]
    program = [sys.executable, "-m", "tests.faults.test_full_disk", what, str(disk), *store]
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


# ── on the small disk ────────────────────────────────────────────────────────


def fill(disk: Path) -> None:
    """Fill the disk completely."""
    with (disk / BALLAST).open("ab") as file:
        while (free := shutil.disk_usage(disk).free) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), free)
                file.seek(0, os.SEEK_END)
            except OSError:
                return


def attempted(action: Any) -> dict[str, Any]:
    """Return the error of an action, if there is one."""
    error = None
    try:
        action()
    except Exception as raised:  # noqa: BLE001 - what it is, is what the test looks at
        error = raised
    return {"kind": type(error).__name__, "ours": isinstance(error, PodiumError), "said": str(error)}


def cache(disk: Path) -> dict[str, Any]:
    """Store answers before, during and after the full disk."""
    answer = Response("x" * 20_000, 1, 1, 0.0, 0.0, "stop")
    store = ResponseCache(disk)
    for number in range(10):
        store.put_many([(f"before {number}", "material", answer)])
    fill(disk)
    kept = 0

    def put_on() -> None:
        nonlocal kept
        while kept < 200:  # what SQLite had room for in pages of its own
            store.put_many([(f"during {kept}", "material", answer)])
            kept += 1

    stopped = attempted(put_on)
    (disk / BALLAST).unlink()
    again = ResponseCache(disk)
    held = again.holds([*(f"before {n}" for n in range(10)), *(f"during {n}" for n in range(kept))])
    again.put_many([("after", "material", answer)])
    return stopped | {"kept": kept, "held": len(held), "after": len(again.holds(["after"]))}


def artifacts(disk: Path, store: str) -> dict[str, Any]:
    """Make a promotion."""
    workspace = checkout(disk / "project", Path(store))
    for _ in range(2):
        version(workspace)
    aliases.promote(workspace, "1", YES)
    fill(disk)
    verdict = replace(YES, against="1")
    stopped = attempted(lambda: aliases.promote(workspace, "2", verdict))
    (disk / BALLAST).unlink()
    before = registry.champion(Workspace(workspace.root))
    done = aliases.promote(workspace, "2", verdict)
    after = registry.champion(workspace)
    assert before is not None and after is not None
    return stopped | {"champion": before.version, "done": done, "then": after.version}


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    print(json.dumps({"cache": cache, "artifacts": artifacts}[what](Path(place), *rest)))
