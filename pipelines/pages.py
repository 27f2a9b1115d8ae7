"""Pages of `docs/` in which a command replaces the text between two equal marker lines."""

from __future__ import annotations

from pathlib import Path

from ops.core.atomic import write_text
from ops.core.errors import DataError

MEASUREMENTS = Path("docs") / "reference" / "measurements.md"
"""The page with all measured tables."""


def write_between(file: Path, mark: str, text: str) -> None:
    """Replace the text between the two lines `mark` of a page atomically; make the page if it is missing.

    Raises `DataError` unless the page has the mark exactly twice.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{mark}\n{mark}\n", encoding="utf-8")
    parts = file.read_text(encoding="utf-8").split(mark)
    if len(parts) != 3:
        remedy = f"Write the line {mark} twice where the table belongs"
        raise DataError(file, mark, f"stands there {len(parts) - 1} times", remedy)
    write_text(file, f"{parts[0]}{mark}\n\n{text.strip()}\n\n{mark}{parts[2]}")
