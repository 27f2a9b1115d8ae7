"""A benchmark's result: the ratio of two measurements of one run, and its bound."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ops.core.workspace import Workspace

SMALL = bool(os.environ.get("PODIUM_BENCH_SMALL"))
"""Whether benchmarks and tables run at a small size that only proves that they run; no bound is checked."""


def sized(whole: int, small: int) -> int:
    """Return a benchmark's size: `whole`, or `small` if PODIUM_BENCH_SMALL is set."""
    return small if SMALL else whole


def measured_alone(module: str, size: int, timeout_s: float) -> dict[str, float]:
    """Run `python -m MODULE SIZE`, whose peak memory is its own; return the figures that it prints last as JSON."""
    command = [sys.executable, "-m", module, str(size)]
    root = Workspace.find().root
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root, timeout=timeout_s)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@dataclass(frozen=True)
class Row:
    """A measurement and a named reference, both from the same run on the same machine and in the same unit.

    The bound is on their ratio, so that it holds on a fast machine and on a slow one: `Row("warm cache", 31.0, "sqlite3
    and json", 20.0, at_most=2.5, unit="µs")`. Less is better: time for a piece of work, never pieces per second.
    """

    name: str
    ours: float
    against: str
    """The name of the reference."""
    reference: float
    at_most: float
    """The bound of `ratio`."""
    unit: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ours) and math.isfinite(self.reference) and self.reference > 0 and self.against):
            raise ValueError(f"{self.name}: {self.ours} against {self.reference} of {self.against!r} is no ratio")

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def holds(self) -> bool:
        return self.ratio <= self.at_most


def report(rows: list[Row], file: Path) -> bool:
    """Print the table and write it as JSON. Returns whether every bound holds."""
    table = Table("", "benchmark", "ours", "against", "reference", "unit", "ratio", "at most", title="make bench")
    for row in rows:
        measured = (f"{row.ours:.4g}", row.against, f"{row.reference:.4g}", row.unit)
        table.add_row("✓" if row.holds else "✗", row.name, *measured, f"{row.ratio:.3f}", f"{row.at_most:g}")
    Console(width=160).print(table)
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = [{**asdict(row), "ratio": round(row.ratio, 4), "holds": row.holds} for row in rows]
    file.write_text(json.dumps(entries, indent=1, ensure_ascii=False), encoding="utf-8")
    return all(row.holds for row in rows)
