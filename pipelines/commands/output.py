"""Text, tables and JSON of the commands.

On a terminal, text wraps at its width with a hanging indent, and a table shows the columns that fit; `--wide` shows all
of them. Piped output is never wrapped or cut: one line per item.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

LABEL_WIDTH = 11
"""Columns of the label of a fact, such as “Champion”."""
GAP = 2
"""Spaces between the columns of a table."""
_NUMBER = re.compile(r"[-+]?[\d,.]+( ?%)?|–")
MIN_TEXT_WIDTH = 30
"""Columns of the terminal that a table's column of long texts has at least, unless it is alone with the first."""


def print_text(text: object = "", err: bool = False) -> None:
    """Print text on standard output, or with `err` on standard error: wrapped on a terminal, unchanged otherwise."""
    stream = sys.stderr if err else sys.stdout
    click.echo(wrap_text(str(text)) if stream.isatty() else str(text), err=err)


class WarningPrinter(logging.Handler):
    """Prints log records on standard error, wrapped like other text."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of a record."""
        print_text(self.format(record), err=True)


def print_fact(label: str, text: object, width: int = LABEL_WIDTH) -> None:
    """Print a text beside its label of `width` columns; on a terminal it wraps beside the label."""
    first = f"{label:<{width}} "
    line = f"{first}{text}"
    if sys.stdout.isatty():
        line = _fill(line, get_terminal_size().columns, len(first))
    click.echo(line)


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[object]] = (), numbers: Collection[str] = (), title: str = "",
    optional: Sequence[str] | None = None, wide: bool = False,
) -> None:  # fmt: skip
    """Print a table whose first column is never cut.

    On a terminal the columns `optional` are left out where the table has no room for them, the first of them first; by
    default these are all but the first two columns, from the right. A line below the table names what is left out. A
    column of long texts wraps. With `wide`, and in piped output, every row is one line with all columns. `numbers` are
    the headings of the columns that are aligned to the right; a `head` of empty texts is not shown.
    """
    from rich.console import Console

    cells = [tuple(map(str, row)) for row in rows]
    everything = range(len(head))
    if wide or not sys.stdout.isatty():
        table = _make_table(head, cells, everything, numbers, title)
        console = Console(highlight=False, width=10_000)
        with console.capture() as captured:
            console.print(table)
        click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
        return
    width = get_terminal_size().columns
    shown = _choose_columns(head, cells, head[:1:-1] if optional is None else optional, width)
    Console(highlight=False, width=width).print(_make_table(head, cells, shown, numbers, title))
    if left_out := [head[place] for place in everything if place not in shown]:
        one = len(left_out) == 1
        names = left_out[0] if one else f"{', '.join(left_out[:-1])} and {left_out[-1]}"
        print_text(f"No room for the column{'' if one else 's'} {names}: --wide shows {'it' if one else 'them'}.")


def _choose_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int
) -> list[int]:
    """Return the places of the columns for which a terminal of that width has room."""
    shown, droppable = list(range(len(head))), [head.index(name) for name in optional]
    needed = [_column_width(head, rows, place) for place in shown]
    needed = [needed[0], *(min(each, MIN_TEXT_WIDTH) for each in needed[1:])]
    while droppable and sum(needed[place] + GAP for place in shown) - GAP > width:
        shown.remove(droppable.pop(0))
    return shown


def _column_width(head: Sequence[str], rows: Sequence[Sequence[str]], place: int) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for row in (head, *rows) for line in row[place].split("\n"))


def _make_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], shown: Iterable[int], numbers: Collection[str], title: str
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, padding=(0, GAP, 0, 0), pad_edge=False, title=title or None, title_justify="left", show_edge=False,
        show_header=any(head),
    )  # fmt: skip
    for place in (places := list(shown)):
        width = _column_width(head, rows, place)
        is_long = place > 0 and width > MIN_TEXT_WIDTH
        table.add_column(
            head[place], justify="right" if head[place] in numbers else "left", overflow="fold", no_wrap=not is_long,
            min_width=None if is_long else width,
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(row[place]) for place in places))
    return table


def print_markdown(text: str, wide: bool = False) -> None:
    """Print a text of Markdown: on a terminal its tables like `print_table`, and its other lines wrapped."""
    if not sys.stdout.isatty():
        click.echo(text, nl=not text.endswith("\n"))
        return
    for is_table, block in _split_markdown(text):
        if is_table:
            head, _, *rows = [_split_row(line) for line in block]
            right = {name for name, *cells in zip(head, *rows, strict=True) if all(map(_NUMBER.fullmatch, cells))}
            print_table(head, rows, right, wide=wide)
        else:
            print_text("\n".join(block))


def _split_markdown(text: str) -> list[tuple[bool, list[str]]]:
    """Return blocks of lines, each with whether it is a table."""
    blocks: list[tuple[bool, list[str]]] = []
    for line in text.splitlines():
        is_table = line.startswith("|")
        if not blocks or blocks[-1][0] is not is_table:
            blocks.append((is_table, []))
        blocks[-1][1].append(line)
    return blocks


def _split_row(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [cell.strip().replace("\\|", "|").replace("`", "").replace("**", "") for cell in cells]


def wrap_text(text: str, width: int | None = None) -> str:
    """Break lines of prose beside their label or mark, at `width` or at the width of the terminal.

    Rows of a table, which have two gaps or more, are not broken.
    """
    columns = width or get_terminal_size().columns
    return "\n".join(line if len(line) <= columns else _wrap_beside_label(line, columns) for line in text.splitlines())


def _wrap_beside_label(line: str, columns: int) -> str:
    if len(re.findall(r"\S {2,}(?=\S)", line)) > 1:
        return line
    label = re.match(r"\s*\S.*?\S {2,}|\s*(?:-|→|–|✓|✗|\d+\.) +|(?:error|warning): |\s*", line)
    room = len(label[0]) if label else 0
    return _fill(line, columns, room)


def _fill(line: str, columns: int, indent: int) -> str:
    return fill(
        line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False,
    )  # fmt: skip


def print_json(value: object) -> None:
    """Print a value of settings, data classes and plain values as one JSON document; an infinite number becomes
    null."""
    from pydantic_core import to_json

    click.echo(to_json(value, inf_nan_mode="null", fallback=str).decode())
