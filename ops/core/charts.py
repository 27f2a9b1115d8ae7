"""Charts as plain data, drawn in one style with matplotlib: as SVG for pages and as PNG for Dagster and MLflow.

Categories are on the vertical axis, so that their names can be read at any width without rotation. Series differ in
lightness and in marker or hatch, so that they can be distinguished without colour. No display is needed.
"""

from __future__ import annotations

import math
import re
import textwrap
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeVar

WIDE_IN, NARROW_IN = 8.8, 3.7
"""Widths of a chart in inches, for a column on a desktop and for a phone."""
INK, FAINT, SIZE = "#1f2933", "#d5dbe1", 9.0


class SeriesStyle(NamedTuple):
    """The colour, hatch and marker of one series."""

    colour: str
    hatch: str
    marker: str


SERIES_STYLES = (
    SeriesStyle("#0b3c5d", "", "o"),
    SeriesStyle("#f2b134", "", "s"),
    SeriesStyle("#6b8fb3", "////", "^"),
    SeriesStyle("#a63d40", "", "D"),
    SeriesStyle("#d9e2ec", "....", "v"),
    SeriesStyle("#3f7d58", "\\\\\\\\", "P"),
    SeriesStyle("#b7d3a8", "oo", "X"),
    SeriesStyle("#5d4a7a", "xxxx", "<"),
    SeriesStyle("#e9c7d6", "----", ">"),
    SeriesStyle("#7a6a4f", "++++", "h"),
)
"""Neighbouring styles differ in lightness. Styles of similar lightness differ in hatch and marker."""


def series_style(place: int) -> SeriesStyle:
    """Return the style of the series at an index, counted from 0; the styles repeat."""
    return SERIES_STYLES[place % len(SERIES_STYLES)]


FRONTIER_LABEL = "no cheaper system is as accurate"
"""The legend's entry for the frontier."""
POINT_LETTERS = ascii_uppercase
"""Labels of the systems on the frontier, from the cheapest. If there are more systems than letters, the most expensive
ones have no label."""
LINE_HEIGHT_IN = 0.2
"""The height of a line of text in inches."""


class ErrorBar(NamedTuple):
    """A value with the two ends of its error bar, in the unit of the axis. An end that is NaN is not drawn."""

    value: float
    low: float
    high: float

    @property
    def arm_lengths(self) -> tuple[float, float]:
        """The lengths of the error bar below and above the value, in the unit of the axis."""
        below, above = self.value - self.low, self.high - self.value
        return 0.0 if math.isnan(below) else max(0.0, below), 0.0 if math.isnan(above) else max(0.0, above)


class Point(NamedTuple):
    """One system in a `ScatterPlot`. Points of the same `group` have the same colour and marker."""

    label: str
    x: float
    y: ErrorBar
    group: str


@dataclass(frozen=True)
class Chart(ABC):
    """A chart with a title, and axes whose labels contain their units."""

    title: str
    x_label: str
    y_label: str

    @property
    @abstractmethod
    def legend_entries(self) -> Sequence[str]:
        """The texts of the legend, in order; empty for a chart without a legend."""

    @abstractmethod
    def plot_height_in(self, narrow: bool) -> float:
        """Return the height of the plot area in inches."""

    @abstractmethod
    def draw(self, axes: Any, narrow: bool) -> None:
        """Draw the chart's marks on matplotlib axes. With `narrow`, there is little room for text."""


def wrap_label(text: str, narrow: bool) -> str:
    """Return a category's name with line breaks, so that enough width is left for the plot."""
    return textwrap.fill(text, 15 if narrow else 34)


def _label_categories(axes: Any, names: Sequence[str], narrow: bool) -> None:
    axes.set_yticks(range(len(names)), [wrap_label(name, narrow) for name in names], fontsize=SIZE)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)


def _count_lines(names: Sequence[str], narrow: bool) -> int:
    return sum(1 + wrap_label(name, narrow).count("\n") for name in names)


@dataclass(frozen=True)
class StackedBars(Chart):
    """Shares of a whole, in percent, as one horizontal bar for each category."""

    categories: Sequence[str] = ()
    layers: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def legend_entries(self) -> Sequence[str]:
        return list(self.layers)

    def plot_height_in(self, narrow: bool) -> float:
        return 0.6 + 0.4 * len(self.categories)

    def draw(self, axes: Any, narrow: bool) -> None:
        begin = [0.0] * len(self.categories)
        for place, (name, shares) in enumerate(self.layers.items()):
            colour, hatch, _ = series_style(place)
            axes.barh(
                range(len(shares)), shares, 0.72, left=begin, label=name, color=colour, hatch=hatch,
                edgecolor="white", linewidth=0.8,
            )  # fmt: skip
            begin = [start + share for start, share in zip(begin, shares, strict=True)]
        _label_categories(axes, self.categories, narrow)
        axes.set_xlim(0, 100)


@dataclass(frozen=True)
class DotPlot(Chart):
    """Values with error bars for each category, with one mark for each series."""

    categories: Sequence[str] = ()
    series: Mapping[str, Sequence[ErrorBar | None]] = field(default_factory=dict)
    shows_zero_line: bool = False
    """True to draw a vertical line at zero."""

    @property
    def legend_entries(self) -> Sequence[str]:
        return list(self.series) if len(self.series) > 1 else []

    def plot_height_in(self, narrow: bool) -> float:
        text = _count_lines(self.categories, narrow) * LINE_HEIGHT_IN
        return 0.6 + max(text, len(self.categories) * (0.12 + 0.14 * len(self.series)))

    def draw(self, axes: Any, narrow: bool) -> None:
        if self.shows_zero_line:
            axes.axvline(0, color=INK, linewidth=1)
        gap = 0.7 / max(1, len(self.series))
        for index, (name, bars) in enumerate(self.series.items()):
            colour, _, marker = series_style(index)
            offset = gap * (index - (len(self.series) - 1) / 2)
            known_bars = [(row + offset, bar) for row, bar in enumerate(bars) if bar is not None]
            axes.errorbar(
                [bar.value for _, bar in known_bars],
                [row for row, _ in known_bars],
                xerr=list(zip(*(bar.arm_lengths for _, bar in known_bars), strict=True)) or None,
                fmt=marker, color=colour, markeredgecolor=INK, markersize=6.5, elinewidth=1.6, capsize=2.5, label=name,
            )  # fmt: skip
        _label_categories(axes, self.categories, narrow)
        axes.grid(axis="y", visible=False)
        for row in range(1, len(self.categories)):
            axes.axhline(row - 0.5, color=FAINT, linewidth=0.6)


@dataclass(frozen=True)
class LineChart(Chart):
    """Curves over training steps."""

    series: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    """Maps the name of each series to its x values and its y values."""
    y_min: float | None = 0.0
    y_max: float | None = None

    @property
    def legend_entries(self) -> Sequence[str]:
        return list(self.series)

    def plot_height_in(self, narrow: bool) -> float:
        return 2.6

    def draw(self, axes: Any, narrow: bool) -> None:
        for place, (name, (x, y)) in enumerate(self.series.items()):
            colour, _, marker = series_style(place)
            often = max(1, len(x) // 8)
            axes.plot(
                x, y, color=colour, linewidth=1.8, label=name, linestyle=("-", "--", "-.", ":")[place % 4],
                marker=marker, markersize=6, markeredgecolor=INK,
                markevery=(place * often // max(1, len(self.series)), often),
            )  # fmt: skip
        axes.set_ylim(self.y_min, self.y_max)


@dataclass(frozen=True)
class StackedAreas(Chart):
    """Shares of a whole, in percent, over training steps, with a curve on a second vertical axis."""

    steps: Sequence[float] = ()
    layers: Mapping[str, Sequence[float]] = field(default_factory=dict)
    curve: Sequence[float] = ()
    curve_label: str = ""
    """The label of the second axis with the unit of the curve. It is also the curve's entry in the legend."""

    @property
    def legend_entries(self) -> Sequence[str]:
        return [*self.layers, self.curve_label]

    def plot_height_in(self, narrow: bool) -> float:
        return 2.6

    def draw(self, axes: Any, narrow: bool) -> None:
        if self.layers:
            colours = [series_style(place).colour for place in range(len(self.layers))]
            axes.stackplot(self.steps, list(self.layers.values()), labels=list(self.layers), colors=colours, alpha=0.55)
        axes.set_ylim(0, 100)
        beside = axes.twinx()
        beside.plot(self.steps, self.curve, color=INK, linewidth=1.8)
        beside.set_ylim(bottom=0)
        beside.set_ylabel(self.curve_label, fontsize=SIZE, color=INK)
        beside.spines["top"].set_visible(False)
        axes.plot([], [], color=INK, linewidth=1.8, label=self.curve_label)  # adds the curve to the legend


@dataclass(frozen=True)
class ScatterPlot(Chart):
    """Systems by price and accuracy, with the Pareto frontier: the systems that no cheaper system matches in
    accuracy."""

    points: Sequence[Point] = ()
    frontier: Sequence[int] = ()
    """Indices of the points on the frontier, in ascending order of x."""
    reference_line: tuple[str, float] | None = None
    """The name and the y value of a horizontal line; None for no such line."""

    @property
    def legend_entries(self) -> Sequence[str]:
        named = [
            f"{letter}  {self.points[place].label}" for letter, place in zip(POINT_LETTERS, self.frontier, strict=False)
        ]
        lines = [
            *([FRONTIER_LABEL] if self.frontier else []),
            *([self.reference_line[0]] if self.reference_line else []),
        ]
        return [*dict.fromkeys(point.group for point in self.points), *lines, *named]

    def plot_height_in(self, narrow: bool) -> float:
        return 3.2

    def draw(self, axes: Any, narrow: bool) -> None:
        for place, group in enumerate(dict.fromkeys(point.group for point in self.points)):
            colour, _, marker = series_style(place)
            group_points = [point for point in self.points if point.group == group]
            axes.errorbar(
                [point.x for point in group_points], [point.y.value for point in group_points],
                yerr=list(zip(*(point.y.arm_lengths for point in group_points), strict=True)),
                fmt=marker, color=colour, markeredgecolor=INK,
                markersize=12 if group == "Conductor" else 6 if narrow else 8,
                elinewidth=1, capsize=2, label=group, zorder=3,
            )  # fmt: skip
        frontier_points = [self.points[place] for place in self.frontier]
        axes.step(
            [point.x for point in frontier_points], [point.y.value for point in frontier_points], where="post",
            color=INK, linewidth=1.2, linestyle="--", label=FRONTIER_LABEL, zorder=2,
        )  # fmt: skip
        if self.reference_line is not None:
            axes.axhline(
                self.reference_line[1], color=INK, linewidth=1.2, linestyle=":", label=self.reference_line[0], zorder=1
            )
        axes.set_xscale("log")
        axes.margins(x=0.1, y=0.12)
        for letter, point, beside in zip(
            POINT_LETTERS, frontier_points, _place_letters(axes, frontier_points, self.points), strict=False
        ):
            axes.annotate(
                letter, (point.x, point.y.value), xytext=beside, textcoords="offset points", fontsize=SIZE,
                fontweight="bold", ha="center", va="center", color=INK, zorder=4,
            )  # fmt: skip
            # An empty plot adds the letter and its system to the legend.
            axes.plot([], [], linestyle="none", label=f"{letter}  {point.label}")
        axes.grid(axis="y", visible=True, color=FAINT, linewidth=0.6)
        if narrow:  # there is no room for a label at each of a decade's nine ticks
            from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.15f}".rstrip("0").rstrip(".")))
            axes.xaxis.set_minor_formatter(NullFormatter())


_OFFSETS = (
    (-10, 10), (11, -11), (-10, 23), (24, -11), (11, 11), (-11, -11), (0, 23), (0, -23), (0, 36), (0, -36), (24, 23),
    (-24, -23),
)  # fmt: skip
"""Positions of a letter relative to its mark, in typographic points, in order of preference."""


def _place_letters(axes: Any, points: Sequence[Point], all_points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the offset of each point's letter in typographic points: the first position without a letter or mark
    nearby."""
    size = axes.figure.dpi / 72

    def to_typographic_points(point: Point) -> tuple[float, float]:
        x, y = axes.transData.transform((point.x, point.y.value)) / size
        return float(x), float(y)

    occupied = [to_typographic_points(point) for point in all_points]
    chosen = []
    for x, y in map(to_typographic_points, points):
        free_offsets = [
            (dx, dy)
            for dx, dy in _OFFSETS
            if all(abs(x + dx - a) > 12 or abs(y + dy - b) > 12 for a, b in occupied if (a, b) != (x, y))
        ]
        dx, dy = free_offsets[0] if free_offsets else (-10, 10)
        occupied.append((x + dx, y + dy))
        chosen.append((float(dx), float(dy)))
    return chosen


def draw_figure(chart: Chart, width: float, label: str) -> Any:
    """Return the chart as a matplotlib figure that is `width` inches wide. `label` ("synthetic") is printed in the
    figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    narrow = width < (WIDE_IN + NARROW_IN) / 2
    columns = max(1, int(width / (0.75 + 0.075 * max((len(key) for key in chart.legend_entries), default=1))))
    lines = -(-len(chart.legend_entries) // columns)
    layout = ConstrainedLayoutEngine()
    figure = Figure(
        figsize=(width, chart.plot_height_in(narrow) + 0.55 + 0.21 * lines), layout=layout, facecolor="white"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SIZE, colors=INK)
    chart.draw(axes, narrow)
    axes.set_xlabel(textwrap.fill(chart.x_label, 34 if narrow else 100), fontsize=SIZE, color=INK)
    axes.set_ylabel(chart.y_label, fontsize=SIZE, color=INK)
    if label:
        axes.set_title(label, loc="right", fontsize=SIZE, color=INK, style="italic")
    if chart.legend_entries:
        marks = {text: mark for mark, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(
            [marks[key] for key in chart.legend_entries], chart.legend_entries, loc="outside lower center",
            ncols=columns, frameon=False, fontsize=SIZE, handlelength=1.8, columnspacing=1.2,
        )  # fmt: skip
    layout.execute(figure)  # this layout may change the ticks, and the next layout makes room for their labels
    return figure


def render_png(chart: Chart, label: str = "", *, width: float = WIDE_IN) -> bytes:
    """Return the chart as a PNG image, by default in the wide version."""
    buffer = BytesIO()
    draw_figure(chart, width, label).savefig(buffer, format="png", dpi=120 if width == WIDE_IN else 160)
    return buffer.getvalue()


def render_svg(chart: Chart, prefix: str, *, width: float = WIDE_IN, label: str = "") -> str:
    """Return the chart as an `<svg>` element without external resources, in which all text is drawn as outlines.

    All ids begin with `prefix`, which must be unique on a page, because charts with equal ids would use each other's
    hatches.
    """
    buffer = StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    draw_figure(chart, width, label).savefig(buffer, format="svg", metadata=no_metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    new_ids = {
        name: f"{prefix}-{place}" for place, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', text)))
    }
    text = re.sub(r' id="([^"]+)"', lambda found: f' id="{new_ids[found[1]]}"', text)
    text = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{new_ids[found[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{new_ids[found[1]]})", text)
    # The page sets the size; the viewBox keeps the proportions.
    head, rest = text.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + rest


K = TypeVar("K")


def compute_shares(counts: Mapping[str, Counter[K]], names: Mapping[K, str]) -> dict[str, list[float]]:
    """Return each key's share in each category, in percent and by the key's name; zero in an empty category."""
    return {
        name: [
            100 * category_counts[key] / category_counts.total() if category_counts.total() else 0.0
            for category_counts in counts.values()
        ]
        for key, name in names.items()
    }
