"""A benchmark's result: the ratio of two measurements of one run, and its bound."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ops.core.atomic import write_text
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


class Absent(Exception):
    """Something that a measurement needs is not on this machine; the message names it."""


class Report:
    """The rows of a call of `make bench`, in a file that is written anew after each of them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._rows: list[Row] = []
        self._left_out: list[dict[str, str]] = []

    @property
    def holds(self) -> bool:
        """Whether every row is within its bound."""
        return all(row.holds for row in self._rows)

    @property
    def failed(self) -> int:
        """The number of parts that ended with an error."""
        return sum("failed" in entry for entry in self._left_out)

    def run(self, name: str, part: Callable[[], Iterable[Row]]) -> None:
        """Measure one part of the benchmark `name`: keep each row, or why there is none. Only Ctrl-C ends it early."""
        where = f"{name}: {part.__name__.strip('_').replace('_', ' ')}"
        print(f"running {where} …", flush=True)
        try:
            for row in part():
                self._rows.append(row)
                self._write()
        except Absent as absent:
            self._leave_out({"benchmark": where, "skipped": f"{absent} is absent"})
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a failed row does not stop the others)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._leave_out({"benchmark": where, "failed": reason, "traceback": traceback.format_exc()})

    def _leave_out(self, entry: dict[str, str]) -> None:
        self._left_out.append(entry)
        print(_line(entry), flush=True)
        self._write()

    def _write(self) -> None:
        entries = [{**asdict(row), "ratio": round(row.ratio, 4), "holds": row.holds} for row in self._rows]
        write_text(self.file, json.dumps([*entries, *self._left_out], indent=1, ensure_ascii=False))

    def show(self) -> None:
        """Print the table, and a line for each part that was skipped or failed."""
        table = Table("", "benchmark", "ours", "against", "reference", "unit", "ratio", "at most", title="make bench")
        for row in self._rows:
            measured = (f"{row.ours:.4g}", row.against, f"{row.reference:.4g}", row.unit)
            table.add_row("✓" if row.holds else "✗", row.name, *measured, f"{row.ratio:.3f}", f"{row.at_most:g}")
        Console(width=160).print(table)
        for entry in self._left_out:
            print(_line(entry))


def _line(entry: Mapping[str, str]) -> str:
    if "skipped" in entry:
        return f"skipped {entry['benchmark']}: {entry['skipped']}"
    return f"failed {entry['benchmark']}: {entry['failed']} (its traceback is in bench.json)"
