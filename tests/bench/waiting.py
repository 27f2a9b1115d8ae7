"""What a person waits for: a run that has nothing left to do, and commands that only read."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.bench.row import SMALL, Absent, Row, sized
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


class Finished(NamedTuple):
    """A new workspace in which the quickstart ran twice, and the CPU seconds of the two runs."""

    folder: tempfile.TemporaryDirectory[str]
    first: float
    second: float

    @property
    def root(self) -> Path:
        return Path(self.folder.name)


@cache
def finished() -> Finished:
    """Run the quickstart twice in a new workspace, once in a call of `make bench`; at the small size only lay it
    out."""
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _cpu_s(root, [*PODIUM, "init", str(root)])
    runs = [0.0, 0.0] if SMALL else [_cpu_s(root, [*PODIUM, "run", "quickstart", "--yes"]) for _ in range(2)]
    return Finished(folder, *runs)


def _second_run() -> Iterator[Row]:
    """Measure a run that finds everything done."""
    if SMALL:
        raise Absent("a finished run, which the small size does not make,")
    done = finished()
    yield Row("podium run with nothing left to do: CPU", done.second, "the first run", done.first, 0.08, "CPU s")


def _commands() -> Iterator[Row]:
    """Measure each command that only reads; at the small size those that read no run."""
    for command in COMMANDS:
        if not SMALL or command[1] != STORES:
            yield _row(finished().root, *command)


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


PARTS = (_second_run, _commands)
"""The measurements of `make bench`."""
