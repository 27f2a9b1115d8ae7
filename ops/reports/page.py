"""Write the report: one HTML file from the templates in `templates`, and its tables as Markdown for the docs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ops.core.atomic import write_bytes, write_text
from ops.core.charts import NARROW_IN, WIDE_IN, Chart, render_png, render_svg
from ops.core.documents import format_markdown_table
from ops.core.workspace import Workspace
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Exhibit, ExhibitContent, MadeExhibit, Table, report_file, synthetic_label
from ops.reports.report_head import ReleaseInfo, describe_training_cost, list_facts, write_sentences

LEAD_EXHIBIT = "accuracy_against_usd"
"""The exhibit whose first chart stands on the first screen of the page, and not in its section."""


def render_page(evidence: Evidence, exhibits: Sequence[MadeExhibit], release: ReleaseInfo) -> str:
    """Return the whole document. Its first screen shows the version, the gate's decision and the result."""
    about, lead = evidence.run, next((made for made in exhibits if made.exhibit.name == LEAD_EXHIBIT), None)
    parts = lead.content.parts if lead is not None and isinstance(lead.content, ExhibitContent) else ()
    return render_template(
        "report.html", title=f"Podium report: {about.recipe}, seed {about.seed}", evidence=evidence, made=exhibits,
        label=synthetic_label(about), release=list_facts(release), said=write_sentences(evidence, release.verdict),
        cost=describe_training_cost(evidence, release.cost),
        picture=next((part for part in parts if not isinstance(part, Table)), None),
    )  # fmt: skip


def render_template(template: str, **values: Any) -> str:
    """Fill a template. Every value is escaped as HTML."""
    return _load_templates().get_template(template).render(values)


@cache
def _load_templates() -> Environment:
    made = Environment(
        loader=PackageLoader("ops.reports"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters["marked_up"] = mark_up_code
    made.globals |= {"svg": _chart_svg, "widths": {"wide": WIDE_IN, "narrow": NARROW_IN}}
    return made


def mark_up_code(text: object) -> Markup:
    """Escape a text as HTML, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(str(text))))


def _chart_svg(chart: Chart, name: str, width: float, shown_label: str) -> Markup:
    return Markup(render_svg(chart, name, width=width, label=shown_label))


def write_page(workspace: Workspace, evidence: Evidence, exhibits: Sequence[MadeExhibit], release: ReleaseInfo) -> Path:
    """Write the page atomically to `report_file`, and return the file."""
    file = report_file(workspace, evidence.run)
    write_text(file, render_page(evidence, exhibits, release))
    return file


def write_pictures(workspace: Workspace, evidence: Evidence, exhibits: Sequence[MadeExhibit]) -> list[Path]:
    """Write every chart as a PNG, and return the files."""
    page = report_file(workspace, evidence.run)
    files = []
    for exhibit, shown in exhibits:
        for number, part in enumerate(shown.parts if isinstance(shown, ExhibitContent) else (), start=1):
            if not isinstance(part, Table):
                files.append(picture_file(page, exhibit, number))
                write_bytes(files[-1], render_png(part, synthetic_label(evidence.run)))
    return files


def picture_file(page: Path, exhibit: Exhibit, number: int) -> Path:
    """Return the file of a chart of an exhibit: `reports/POLICY/EXHIBIT-NUMBER.png`."""
    return page.with_suffix("") / f"{exhibit.name}-{number}.png"


def format_markdown(evidence: Evidence, exhibits: Sequence[MadeExhibit]) -> str:
    """Return one section in Markdown for each exhibit, with its sample and its result."""
    about = evidence.run
    identity = f"Recipe `{about.recipe}`, seed {about.seed}, policy `{about.policy}`, pool `{about.pool}`"
    head = f"{identity}: {evidence.sample_description}."
    absent = [f"Not read: {name} ({why})." for name, why in evidence.unreadable.items()]
    return "\n\n".join([head, *absent, *(_markdown_section(each, synthetic_label(about)) for each in exhibits)]) + "\n"


def _markdown_section(made: MadeExhibit, shown_label: str) -> str:
    exhibit, shown = made
    title = f"## {exhibit.title}" + (f" ({shown_label})" if shown_label else "")
    if isinstance(shown, str):
        return f"{title}\n\n{exhibit.description}\n\n{_escape_markdown(shown)}"
    paper = f" In the paper: {exhibit.paper}." if exhibit.paper else ""
    said = [f"**{_escape_markdown(shown.summary)}**"] if shown.summary else []
    tables = [_markdown_table(part) for part in shown.parts if isinstance(part, Table)]
    return "\n\n".join([title, f"{exhibit.description} n: {shown.sample_description}.{paper}", *said, *tables])


def _markdown_table(table: Table) -> str:
    cells = format_markdown_table(
        [_escape_markdown(head) for head in table.head],
        [[_escape_markdown(cell) for cell in row] for row in table.rows],
    )
    title = [f"*{_escape_markdown(table.title)}*"] if table.title else []
    return "\n\n".join([*title, cells, *([_escape_markdown(table.note)] if table.note else [])])


def _escape_markdown(text: object) -> str:
    # Dollar signs would begin formulas, and angle brackets tags.
    return str(text).replace("\N{NO-BREAK SPACE}", " ").replace("<", "&lt;").replace("$", "\\$")
