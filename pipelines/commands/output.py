"""Tables and JSON of the commands: names are never cut, and piped output has no cut lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 200
"""The maximum width of output without a terminal. A table is as wide as its content."""


def make_console() -> Console:
    """Return a console on standard output with the width of the terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def make_table(
    head: Sequence[str], rows: Iterable[Sequence[object]] = (), numbers: Iterable[str] = (), title: str = ""
) -> Table:
    """Return a table whose first column is never cut and whose other columns wrap. `numbers` are the headings of
    columns that are aligned to the right."""
    from rich.table import Table

    right = set(numbers)
    made = Table(box=None, padding=(0, 2, 0, 0), title=title or None, title_justify="left", show_edge=False)
    for place, name in enumerate(head):
        made.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=place == 0)
    for row in rows:
        made.add_row(*map(str, row))
    return made


def wrap_text(text: str, width: int | None = None) -> str:
    """Break lines of prose beside their label or mark, at `width` or at the width of the terminal. Piped output is
    unchanged.

    Rows of a table, which have two gaps or more, are not broken.
    """
    if width is None and not sys.stdout.isatty():
        return text
    columns = width or make_console().width
    return "\n".join(line if len(line) <= columns else _wrap_beside_label(line, columns) for line in text.splitlines())


def _wrap_beside_label(line: str, columns: int) -> str:
    if len(re.findall(r"\S {2,}(?=\S)", line)) > 1:
        return line
    label = re.match(r"\s*\S.*?\S {2,}|\s*(?:-|→|\d+\.) |\s*", line)
    room = len(label[0]) if label else 0
    return fill(
        line, columns, subsequent_indent=" " * room, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False,
    )  # fmt: skip


def print_json(value: object) -> None:
    """Print a value of settings, data classes and plain values as one JSON document; an infinite number becomes
    null."""
    from pydantic_core import to_json

    click.echo(to_json(value, inf_nan_mode="null", fallback=str).decode())


def has_room_for(table: Table, console: Console) -> bool:
    """Return whether all cells of the table have room without wrapping."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width
