"""Write the report as one HTML file without external resources, readable on a phone, printed one exhibit per page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from ops.core.atomic import write_text
from ops.core.charts import NARROW_IN, WIDE_IN, Chart, png, svg
from ops.core.workspace import Workspace
from ops.reports.evidence import About, Evidence
from ops.reports.exhibit import Cell, Exhibit, Shown, Table
from ops.reports.made import Made, label, report_file
from ops.reports.summary import Released, facts, sentences

_NUMBER = re.compile(r"[<+\-−–$\s\d.,±…%×]*")
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1.25rem; background: #fff; color: #1f2933;
  font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; }
a { color: #0b3c5d; }
code { font: .875em/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere; }
section { border-top: 1px solid #9aa5b1; margin-top: 2.5rem; padding-top: 1.25rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem 1rem; margin: .5rem 0 1rem;
  font-size: .875rem; }
dt { color: #52606d; } dd { margin: 0; overflow-wrap: anywhere; }
nav ol { columns: 2; column-gap: 3rem; padding-left: 2rem; } nav li { break-inside: avoid; margin: .15rem 0; }
.label { display: inline-block; border: 1px solid #7a4b00; border-radius: .25rem; color: #7a4b00; font-size: .75rem;
  font-weight: 600; letter-spacing: .03em; padding: 0 .4rem; vertical-align: middle; white-space: nowrap; }
.warning { border-left: 4px solid #f2b134; background: #fff8e6; padding: .6rem .9rem; max-width: none;
  overflow-wrap: anywhere; }
.said { font-weight: 600; }
.missing { border: 1px dashed #7b8794; padding: .6rem .9rem; }
.scroll { overflow-x: auto; border: 1px solid #d5dbe1; margin: .5rem 0; max-width: 100%; width: fit-content; }
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; text-align: left; vertical-align: top; border-bottom: 1px solid #e4e7eb; }
thead th { background: #f5f7fa; vertical-align: bottom; line-height: 1.25; }
td.number, th.number { text-align: right; white-space: nowrap; } thead th.number { white-space: normal; }
tbody th { font-weight: 400; position: sticky; left: 0; background: #fff; min-width: 7rem; }
td.long { min-width: 16rem; }
tr.marked th, tr.marked td { background: #e8eff5; font-weight: 600; }
.note { font-size: .875rem; color: #52606d; }
figure { margin: .75rem 0; } figure svg { display: block; width: 100%; height: auto; }
.wide { max-width: 53rem; } .narrow { display: none; max-width: 24rem; }
@media (max-width: 640px) {
  body { padding: .75rem; } nav ol { columns: 1; } .wide { display: none; } .narrow { display: block; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; }
  th, td { padding: .3rem .45rem; } tbody th { max-width: 9rem; min-width: 5.5rem; }
}
@media print {
  @page { size: A4 portrait; margin: 12mm; }
  body { max-width: none; padding: 0; font-size: 9pt; line-height: 1.35; }
  section { break-before: page; break-inside: avoid; border-top: 0; margin-top: 0; padding-top: 0; }
  section > p, section > dl, .part { break-inside: avoid; } section > p { break-after: avoid; max-width: none; }
  section > dl { break-before: avoid; margin: .25rem 0 0; font-size: 8pt; }
  h1 { font-size: 15pt; } h2 { font-size: 12pt; }
  nav { break-inside: avoid; } h3 { margin-top: .5rem; font-size: 9.5pt; } .note { font-size: 8pt; }
  p { margin-bottom: .4rem; }
  .scroll { overflow: visible; border: 0; width: auto; } table { font-size: 7.5pt; max-width: 100%; }
  th, td { padding: 1.5pt 4pt; } td.number { white-space: normal; } tbody th { position: static; min-width: 0; }
  td.long { min-width: 0; }
  tr, figure { break-inside: avoid; } thead { display: table-header-group; } h2, h3 { break-after: avoid; }
  .wide { display: block; max-width: 100%; } .narrow { display: none; }
  figure { margin: .3rem 0; } figure .wide svg { width: auto; max-width: 100%; max-height: 58mm; }
  a { color: inherit; text-decoration: none; }
}
"""


def page(evidence: Evidence, made: Sequence[Made], known: Released) -> str:
    """The whole document; its first screen shows the version, the gate's decision and the result."""
    about = evidence.about
    title = f"Podium report: {about.recipe}, seed {about.seed}"
    sections = "\n".join(_section(each, about, place) for place, each in enumerate(made, start=1))
    contents = "\n".join(f'<li><a href="#{each.exhibit.name}">{html(each.exhibit.title)}</a></li>' for each in made)
    return document(
        title,
        f"""<header>
<h1>{html(title)} {_badge(about)}</h1>
{listed({term: html(text) for term, text in facts(known).items()})}
{_result(evidence)}
</header>
<details open>
<summary>What it is made of</summary>
{_facts(evidence)}
{_warnings(evidence)}
</details>
<nav aria-label="Contents">
<h2>Contents</h2>
<ol>
{contents}
</ol>
</nav>
<main>
{sections}
</main>""",
    )


def html(text: str) -> str:
    """Escape `text` as HTML, with text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def document(title: str, body: str) -> str:
    """A self-contained HTML document; `body` is HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _badge(about: About) -> str:
    return f'<span class="label">{html(label(about))}</span>' if label(about) else ""


def _result(evidence: Evidence) -> str:
    said = sentences(evidence) or [f"Nothing was scored yet: podium evaluate {evidence.about.argument}."]
    return "\n".join(f'<p class="said">{html(text)}</p>' for text in said)


def _facts(evidence: Evidence) -> str:
    about = evidence.about
    return listed({
        "policy": html(about.policy or "–"),
        "pool": html(about.pool),
        "asked": html(evidence.n),
        "systems": f"{len(evidence.systems)}",
        "made by": f"<code>podium report {html(about.argument)}</code>",
    })  # fmt: skip


def listed(facts: Mapping[str, str]) -> str:
    """A definition list of terms and their values, which are HTML."""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items()) + "</dl>"


def _warnings(evidence: Evidence) -> str:
    said = []
    if evidence.about.synthetic:
        said.append(
            "<strong>Synthetic environment.</strong> Generated problems and embedded workers: the figures are of these "
            "and say nothing of the paper's. The paper's stand in columns of their own, for the shape only."
        )
    said += [f"Not read: {html(name)} ({html(why)})" for name, why in evidence.absent.items()]
    return "\n".join(f'<p class="warning">{text}</p>' for text in said)


def _section(made: Made, about: About, place: int) -> str:
    exhibit, shown = made
    body = [
        f'<section id="{exhibit.name}">',
        f"<h2>{place}. {html(exhibit.title)} {_badge(about)}</h2>",
        f"<p>{html(exhibit.shows)}</p>",
    ]
    if isinstance(shown, str):
        return "\n".join([*body, f'<p class="missing">{html(shown)}</p>', "</section>"])
    if shown.said:
        body.append(f'<p class="said">{html(shown.said)}</p>')
    for number, part in enumerate(shown.parts, start=1):
        name = f"{exhibit.name}-{number}"
        drawn = table(part) if isinstance(part, Table) else figure(part, name, exhibit.title, label(about))
        body.append(f'<div class="part">{drawn}</div>')
    return "\n".join([*body, _source(exhibit, shown.n, about), "</section>"])


def _source(exhibit: Exhibit, n: str, about: About) -> str:
    facts = {"n": html(n), "command": f"<code>podium report {html(about.argument)}</code>"}
    return listed(facts | ({"in the paper": html(exhibit.paper)} if exhibit.paper else {}))


def figure(chart: Chart, name: str, title: str, shown_label: str) -> str:
    """A chart in a wide and a narrow version; `name` prefixes its ids on the page, `title` is the exhibit's title."""
    said = escape(": ".join(part for part in (title, chart.title) if part), quote=True)
    drawn = [
        f'<div class="{kind}" role="img" aria-label="{said}">'
        f"{svg(chart, f'{name}-{kind}', width=width, label=shown_label)}</div>"
        for kind, width in (("wide", WIDE_IN), ("narrow", NARROW_IN))
    ]
    head = f"<h3>{html(chart.title[:1].upper() + chart.title[1:])}</h3>" if chart.title else ""
    return f"{head}<figure>{''.join(drawn)}</figure>"


def table(table: Table) -> str:
    """A table that scrolls horizontally if it is too wide."""
    numeric = [all(_NUMBER.fullmatch(str(row[place])) for row in table.rows) for place in range(len(table.head))]
    head = "".join(f'<th scope="col"{_kind(n)}>{html(text)}</th>' for text, n in zip(table.head, numeric, strict=True))
    rows = "\n".join(_row(row, numeric, place in table.marked) for place, row in enumerate(table.rows))
    title = f"<h3>{html(table.title)}</h3>" if table.title else ""
    note = f'<p class="note">{html(table.note)}</p>' if table.note else ""
    named = escape(table.title or "Table", quote=True)
    return (
        f'{title}<div class="scroll" role="region" aria-label="{named}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _row(row: Sequence[Cell], numeric: Iterable[bool], marked: bool) -> str:
    cells = [str(cell) for cell in row]
    first, *others = zip(cells, numeric, strict=True)
    text = f'<th scope="row">{html(first[0])}</th>' + "".join(
        f"<td{_kind(number, len(cell))}>{html(cell)}</td>" for cell, number in others
    )
    return f'<tr class="marked">{text}</tr>' if marked else f"<tr>{text}</tr>"


def _kind(number: bool, length: int = 0) -> str:
    return ' class="number"' if number else ' class="long"' if length > 60 else ""


def write_page(workspace: Workspace, evidence: Evidence, made: Sequence[Made], known: Released) -> Path:
    """Write the page to `report_file` atomically and return the file."""
    file = report_file(workspace, evidence.about)
    write_text(file, page(evidence, made, known))
    return file


def write_pictures(workspace: Workspace, evidence: Evidence, made: Sequence[Made]) -> list[Path]:
    """Write every chart to `reports/POLICY/EXHIBIT-NUMBER.png` and return the files."""
    home = report_file(workspace, evidence.about).with_suffix("")
    home.mkdir(parents=True, exist_ok=True)
    files = []
    for exhibit, shown in made:
        for number, part in enumerate(shown.parts if isinstance(shown, Shown) else (), start=1):
            if not isinstance(part, Table):
                files.append(home / f"{exhibit.name}-{number}.png")
                files[-1].write_bytes(png(part, label(evidence.about)))
    return files
