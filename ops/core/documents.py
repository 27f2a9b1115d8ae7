"""Markdown: tables, and pages of `docs/` in which a command replaces the text between two equal marker lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ops.core.atomic import write_text
from ops.core.errors import DataError

MEASUREMENTS = Path("docs") / "reference" / "measurements.md"
"""The page of the documentation with all measured tables."""


def write_between(file: Path, mark: str, text: str) -> None:
    """Replace the text between the two lines `mark` of a page atomically; make the page if it is missing.

    Raises `DataError` unless the page has the mark exactly twice.
    """
    parts = (file.read_text(encoding="utf-8") if file.exists() else f"{mark}\n{mark}\n").split(mark)
    if len(parts) != 3:
        remedy = f"Write the line {mark} twice where the table belongs"
        raise DataError(file, mark, f"stands there {len(parts) - 1} times", remedy)
    write_text(file, f"{parts[0]}{mark}\n\n{text.strip()}\n\n{mark}{parts[2]}")


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; vertical bars in cells are escaped, and white space is one blank."""
    return "\n".join([_line(head), f"|{' --- |' * len(head)}", *(_line(row) for row in rows)])


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in cells)} |"
