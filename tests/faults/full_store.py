"""A small file system, full and then not: `python -m tests.faults.full_store DISK cache|artifacts`, a JSON line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.cache import ResponseCache
from ops.core.errors import PodiumError
from ops.core.response import Response
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from tests.releases import YES, checkout, version

BALLAST = "ballast"


def fill(disk: Path) -> None:
    """Fill the disk completely."""
    with (disk / BALLAST).open("ab") as file:
        while (free := shutil.disk_usage(disk).free) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), free)
                file.seek(0, os.SEEK_END)
            except OSError:
                return


def said(error: Exception | None) -> dict[str, Any]:
    return {"kind": type(error).__name__, "ours": isinstance(error, PodiumError), "said": str(error)}


def attempted(action: Any) -> Exception | None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - what it is, is what the test looks at
        return error
    return None


def cache(disk: Path) -> dict[str, Any]:
    """Store answers before, during and after the full disk."""
    answer = Response("x" * 20_000, 1, 1, 0.0, 0.0, "stop")
    store = ResponseCache(disk)
    for number in range(10):
        store.put_many([(f"before {number}", "material", answer)])
    fill(disk)
    stopped, kept = None, 0
    for number in range(200):  # what SQLite had room for in pages of its own
        if stopped := attempted(lambda number=number: store.put_many([(f"during {number}", "material", answer)])):
            break
        kept += 1
    (disk / BALLAST).unlink()
    again = ResponseCache(disk)
    held = again.holds([*(f"before {n}" for n in range(10)), *(f"during {n}" for n in range(kept))])
    again.put_many([("after", "material", answer)])
    return {**said(stopped), "kept": kept, "held": len(held), "after": len(again.holds(["after"]))}


def artifacts(disk: Path, store: Path) -> dict[str, Any]:
    """Make a promotion."""
    workspace = checkout(disk / "project", store)
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
    return {**said(stopped), "champion": before.version, "done": done, "then": after.version}


if __name__ == "__main__":
    place, what, *rest = sys.argv[1:]
    print(json.dumps(cache(Path(place)) if what == "cache" else artifacts(Path(place), Path(rest[0]))))
