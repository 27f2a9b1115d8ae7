"""What a benchmark reports, and the file that collects it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """Ours and the reference, measured in the same run; `ratio` = ours / reference."""

    name: str
    ours: float
    reference: float
    bound: str
    """What the design asks for, as a comparison with `ratio` or `ours`."""
    unit: str

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    def as_object(self) -> dict[str, float | str]:
        return {**self._asdict(), "ratio": round(self.ratio, 4)}


def report(rows: list[Row], file: Path) -> None:
    """Print the table and write it as JSON."""
    table = Table("benchmark", "ours", "reference", "ratio", "bound", "unit", title="make bench")
    for row in rows:
        table.add_row(row.name, f"{row.ours:.4g}", f"{row.reference:.4g}", f"{row.ratio:.3f}", row.bound, row.unit)
    Console(width=150).print(table)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([row.as_object() for row in rows], indent=1), encoding="utf-8")
