"""What a person waits for: a run that has nothing left to do, and commands that only read."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.row import SMALL, Row, sized
from tests.command import PODIUM

LIBRARIES = "import click, pydantic, rich.console, yaml"
STORES = "import dagster, mlflow, mlflow.store.tracking.sqlalchemy_store"
COMMANDS = (
    (("--help",), "pass", 9.0),
    (("pools", "show", "quickstart"), LIBRARIES, 6.0),
    (("ledger",), LIBRARIES, 5.5),
    (("recipes", "list"), LIBRARIES, 4.5),
    (("recipes", "show", "quickstart"), LIBRARIES, 4.5),
    (("plan", "quickstart"), LIBRARIES, 13.0),
    (("config", "validate"), "import litellm", 1.3),
    (("runs", "list"), STORES, 0.6),
    (("verdict",), STORES, 0.9),
    (("status",), STORES, 1.1),
)
"""Command, the program that it is compared with, and the bound of the ratio."""


def rows() -> list[Row]:
    """Run the pipeline twice in a new workspace, then each command; at the small size only those that read no run."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _cpu_s(root, [*PODIUM, "init", str(root)])
        if SMALL:
            return [_row(root, *each) for each in COMMANDS if each[1] != STORES]
        first, second = (_cpu_s(root, [*PODIUM, "run", "quickstart", "--yes"]) for _ in range(2))
        return [
            Row("podium run with nothing left to do: CPU", second, "the first run", first, 0.08, "CPU s"),
            *(_row(root, *each) for each in COMMANDS),
        ]


def _row(root: Path, command: Sequence[str], reference: str, at_most: float) -> Row:
    times = sized(5, 1)
    ours = statistics.median(_cpu_s(root, [*PODIUM, *command]) for _ in range(times))
    against = statistics.median(_cpu_s(root, [sys.executable, "-c", reference]) for _ in range(times))
    return Row(f"podium {' '.join(command)}: CPU", ours, f"python -c '{reference}'", against, at_most, "CPU s")


def _cpu_s(root: Path, command: Sequence[str]) -> float:
    """Run the command in the workspace; return the CPU seconds of its processes. Exit code 3 is the gate's answer."""
    before = _children()
    ended = subprocess.run(
        command, cwd=root, env={**os.environ, "PODIUM_ROOT": str(root)}, capture_output=True, text=True, check=False,
        timeout=3600,
    )  # fmt: skip
    if ended.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr or ended.stdout}")
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
