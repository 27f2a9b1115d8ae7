"""Every notice on disk, whatever channels there are."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ops.alerts.channel import Delivery
from ops.alerts.notice import Notice
from ops.core.workspace import Workspace


@dataclass(frozen=True)
class Kept:
    """A notice with when it came (seconds since the epoch) and which channels did not take it."""

    at: float
    notice: Notice
    problems: tuple[str, ...]


def keep(workspace: Workspace, notice: Notice, deliveries: Sequence[Delivery]) -> None:
    """Append one line: one write, which lines of other processes do not cut. Raises `OSError`."""
    problems = [delivery.problem for delivery in deliveries if not delivery.taken]
    line = json.dumps({"at": time.time(), **asdict(notice), "problems": problems}, ensure_ascii=False) + "\n"
    file = _file(workspace)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("utf-8", "surrogatepass"))
    finally:
        os.close(handle)


def told(workspace: Workspace, occasion: str) -> bool:
    """Whether there was a notice of that occasion."""
    return any(entry.notice.occasion == occasion for entry in kept(workspace, sys.maxsize))


def kept(workspace: Workspace, count: int) -> list[Kept]:
    """The newest `count` notices, newest first. Lines that a crash cut are skipped."""
    file = _file(workspace)
    if not file.is_file():
        return []
    found = []
    for line in reversed(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        at, problems = facts.pop("at"), facts.pop("problems")
        found.append(Kept(at, Notice(**facts), tuple(problems)))
        if len(found) == count:
            break
    return found


def _file(workspace: Workspace) -> Path:
    return workspace.outcome / "alerts.jsonl"
