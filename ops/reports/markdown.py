"""Write the report's tables as Markdown for the docs; the charts are in the HTML report."""

from __future__ import annotations

from collections.abc import Sequence

from ops.reports.evidence import Evidence
from ops.reports.exhibit import Table
from ops.reports.made import Made, label


def markdown(evidence: Evidence, made: Sequence[Made]) -> str:
    """Format one section per exhibit, with its sample size and result."""
    about = evidence.about
    head = f"Recipe `{about.recipe}`, seed {about.seed}, policy `{about.policy}`, pool `{about.pool}`: {evidence.n}."
    absent = [f"Not read: {name} ({why})." for name, why in evidence.absent.items()]
    return "\n\n".join([head, *absent, *(_section(each, label(about)) for each in made)]) + "\n"


def _section(made: Made, shown_label: str) -> str:
    exhibit, shown = made
    title = f"## {exhibit.title}" + (f" ({shown_label})" if shown_label else "")
    if isinstance(shown, str):
        return f"{title}\n\n{exhibit.shows}\n\n{_cell(shown)}"
    paper = f" In the paper: {exhibit.paper}." if exhibit.paper else ""
    said = [f"**{_cell(shown.said)}**"] if shown.said else []
    tables = [_table(part) for part in shown.parts if isinstance(part, Table)]
    return "\n\n".join([title, f"{exhibit.shows} n: {shown.n}.{paper}", *said, *tables])


def _table(table: Table) -> str:
    lines = [_line(table.head), f"|{' --- |' * len(table.head)}", *(_line(row) for row in table.rows)]
    title = [f"*{_cell(table.title)}*"] if table.title else []
    note = [_cell(table.note)] if table.note else []
    return "\n\n".join([*title, "\n".join(lines), *note])


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(cell: object) -> str:
    # Escape Markdown syntax in a cell: the column separator, dollar signs (formulas) and angle brackets (tags).
    text = str(cell).replace("\N{NO-BREAK SPACE}", " ")
    return text.replace("|", "\\|").replace("<", "&lt;").replace("$", "\\$")
