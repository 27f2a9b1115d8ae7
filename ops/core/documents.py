"""Write Markdown tables, and replace the text between two marker lines of a page in `docs/`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.settings_files import read_yaml

MEASUREMENTS = Path("docs") / "reference" / "measurements.md"
"""The page of the documentation that shows the most important columns of measured tables, and links to all of them."""
SHOWN_FILE = "shown.yaml"
"""Name of the file that says which tables and columns of a command's text a page shows. It is in the folder named like
the page."""


class Document(NamedTuple):
    """The text that a command prints, divided into prose and tables."""

    prose: str
    tables: list[list[list[str]]]
    """Tables as lists of rows, which are lists of cells. The first row of a table is its header."""


def replace_marked_text(file: Path, mark: str, text: str) -> Path:
    """Replace the text between the two lines `mark` of a page atomically, and create the page if it is missing.

    Returns the page, or the folder of the CSV files if the page does not show the text.

    If the folder named like the page contains `shown.yaml`, all tables of `text` are written into CSV files in that
    folder, and the page shows only the tables and columns that `shown.yaml` names. If it names none for this mark, the
    page stays as it is. Raises `DataError` unless a page that shows the text contains the mark exactly twice.
    """
    folder = file.with_suffix("")
    selects = (folder / SHOWN_FILE).is_file()
    if selects and not read_yaml(folder / SHOWN_FILE).get(mark_slug(mark)):
        _write_tables(folder, mark, parse_document(text))
        return folder
    sections = (file.read_text(encoding="utf-8") if file.exists() else f"{mark}\n{mark}\n").split(mark)
    if len(sections) != 3:
        remedy = f"Write the line {mark} twice where the table belongs"
        raise DataError(file, mark, f"stands there {len(sections) - 1} times", remedy)
    if selects:
        document = parse_document(text)
        _write_tables(folder, mark, document)
        text = render_shown_tables(folder, mark, document)
    write_text(file, f"{sections[0]}{mark}\n\n{text.strip()}\n\n{mark}{sections[2]}")
    return file


def parse_document(text: str) -> Document:
    """Divide Markdown text into its prose and its tables."""
    prose, tables, in_table = list[str](), list[list[list[str]]](), False
    for line in text.splitlines():
        if not line.startswith("|"):
            prose.append(line)
            in_table = False
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not in_table:
            tables.append([cells])
            in_table = True
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            tables[-1].append(cells)
    return Document(re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), tables)


def render_shown_tables(folder: Path, mark: str, document: Document) -> str:
    """Return what a page shows of a command's text according to `shown.yaml`.

    A table or column that the text does not contain is left out, because a command that measures another recipe, or one
    seed instead of several, prints fewer tables.
    """
    wanted: Mapping[str, Any] = read_yaml(folder / SHOWN_FILE).get(mark_slug(mark)) or {}
    parts = [document.prose] if wanted.get("prose") else []
    for number, columns in (wanted.get("tables") or {}).items():
        with suppress(IndexError, ValueError):  # the text has no such table or column
            parts.append(_select_columns(document.tables[int(number) - 1], columns))
    return "\n\n".join(parts)


def mark_slug(mark: str) -> str:
    """Return the name of the files that belong to a marker line: "vote" for ``<!-- made by `podium study vote`
    -->``."""
    words = re.sub(r"<!-- made by|-->|`|podium study|make|python -m tests\.bench\.|:|--", " ", mark)
    return "-".join(words.split())


def _table_names(mark: str, document: Document) -> list[str]:
    name = mark_slug(mark)
    tables = [f"{name}.csv" if number == 1 else f"{name}-{number}.csv" for number in range(1, len(document.tables) + 1)]
    return [*tables, f"{name}.txt"] if re.search(r"\d", document.prose) else tables


def _write_tables(folder: Path, mark: str, document: Document) -> None:
    for name, table in zip(_table_names(mark, document), document.tables, strict=False):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([[cell.replace("**", "") for cell in row] for row in table])
        write_text(folder / name, buffer.getvalue())
    if re.search(r"\d", document.prose):
        write_text(folder / f"{mark_slug(mark)}.txt", f"{document.prose}\n")


def _select_columns(table: Sequence[Sequence[str]], wanted: Mapping[str, Any]) -> str:
    """Return the wanted columns and rows of a table as Markdown.

    `wanted["columns"]` maps the name of a column, or its number from 1 if two columns share a name, to its heading on
    the page. `wanted["rows"]` is a regular expression that a row's cells must match. `wanted["labels"]` maps a cell's
    whole text to the text that the page shows instead.
    """
    head, *rows = table
    labels: Mapping[str, str] = wanted.get("labels") or {}
    columns: Mapping[str, str] = wanted.get("columns") or {name: name for name in head}
    places = [int(name) - 1 if name.isdigit() else list(head).index(name) for name in columns]
    plain = [[cell.replace("**", "") for cell in row] for row in rows]
    kept = [row for row in plain if re.search(wanted.get("rows", ""), " | ".join(row))]
    return format_markdown_table(
        list(columns.values()), [[labels.get(row[place], row[place]) for place in places] for row in kept]
    )


def format_markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table. Vertical bars in cells are escaped, and every run of white space becomes one blank."""
    return "\n".join([_format_row(head), f"|{' --- |' * len(head)}", *(_format_row(row) for row in rows)])


def _format_row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in cells)} |"
