"""Render charts without pyplot or a display: SVG for pages, PNG for Dagster."""

from __future__ import annotations

import re
import textwrap
from io import BytesIO, StringIO
from typing import Any

from ops.reports.charts import Chart
from ops.reports.style import FAINT, INK, NARROW_IN, SIZE, WIDE_IN


def figure(chart: Chart, width: float, label: str) -> Any:
    """Draw the chart as a figure of `width` inches; `label` (`synthetic`) is printed in the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    narrow = width < (WIDE_IN + NARROW_IN) / 2
    columns = max(1, int(width / (0.75 + 0.075 * max((len(key) for key in chart.keys), default=1))))
    lines = -(-len(chart.keys) // columns)
    made = Figure(figsize=(width, chart.body(narrow) + 0.55 + 0.21 * lines), layout="constrained", facecolor="white")
    FigureCanvasAgg(made)
    axes = made.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SIZE, colors=INK)
    chart.draw(axes, narrow)
    axes.set_xlabel(textwrap.fill(chart.x, 34 if narrow else 100), fontsize=SIZE, color=INK)
    axes.set_ylabel(chart.y, fontsize=SIZE, color=INK)
    if label:
        axes.set_title(label, loc="right", fontsize=SIZE, color=INK, style="italic")
    if chart.keys:
        marks = {text: mark for mark, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        made.legend(
            [marks[key] for key in chart.keys], chart.keys, loc="outside lower center", ncols=columns, frameon=False,
            fontsize=SIZE, handlelength=1.8, columnspacing=1.2,
        )  # fmt: skip
    made.draw_without_rendering()  # the layout may change the ticks, whose labels need room in the next layout
    return made


def png(chart: Chart, label: str = "") -> bytes:
    """Render the wide version as PNG."""
    buffer = BytesIO()
    figure(chart, WIDE_IN, label).savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def svg(chart: Chart, prefix: str, *, width: float = WIDE_IN, label: str = "") -> str:
    """Render an `<svg>` element without external resources, with text as outlines and ids that begin with `prefix`.

    Ids must be unique on a page; charts with equal ids would use each other's hatches.
    """
    buffer = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure(chart, width, label).savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    names = {name: f"{prefix}-{place}" for place, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', text)))}
    text = re.sub(r' id="([^"]+)"', lambda found: f' id="{names[found[1]]}"', text)
    text = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{names[found[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names[found[1]]})", text)
    # The page sets the size; the viewBox keeps the proportions.
    head, rest = text.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + rest
