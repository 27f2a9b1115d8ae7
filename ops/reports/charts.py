"""Charts as plain data with a method that draws them at a given width.

Categories are on the vertical axis, so that their names are readable at any width without rotation. Marks differ in
lightness and in shape or hatch, so that they can be distinguished without colours.
"""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, NamedTuple

from ops.reports.style import FAINT, INK, SIZE, series_style

LINE = "no cheaper system is as accurate"
"""Legend entry of the frontier."""
LETTERS = ascii_uppercase
"""Labels of the systems on the frontier; if there are more systems, the most expensive ones have no label."""
LINE_IN = 0.2
"""Height of a line of text, in inches."""


class Spread(NamedTuple):
    """A value and the two ends of its error bar, in the axis's unit."""

    value: float
    low: float
    high: float


class Point(NamedTuple):
    """One system in a `Plane`."""

    label: str
    x: float
    y: float
    error: float
    group: str


@dataclass(frozen=True)
class Chart(ABC):
    """A chart with a title and labelled axes with units."""

    title: str
    x: str
    y: str

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """Entries of the legend."""

    @abstractmethod
    def body(self, narrow: bool) -> float:
        """Height of the plot area, in inches."""

    @abstractmethod
    def draw(self, axes: Any, narrow: bool) -> None:
        """Draw the marks on matplotlib axes; `narrow`: there is little room for text."""


def wrapped(text: str, narrow: bool) -> str:
    """Wrap a category's name so that its bar has enough room."""
    return textwrap.fill(text, 15 if narrow else 34)


def _categories(axes: Any, names: Sequence[str], narrow: bool) -> None:
    axes.set_yticks(range(len(names)), [wrapped(name, narrow) for name in names], fontsize=SIZE)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _lines(names: Sequence[str], narrow: bool) -> int:
    return sum(1 + wrapped(name, narrow).count("\n") for name in names)


@dataclass(frozen=True)
class Stacked(Chart):
    """Shares of a whole by category, in %."""

    categories: Sequence[str] = ()
    layers: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def keys(self) -> Sequence[str]:
        return list(self.layers)

    def body(self, narrow: bool) -> float:
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
        _categories(axes, self.categories, narrow)
        axes.set_xlim(0, 100)


@dataclass(frozen=True)
class Dots(Chart):
    """Values with error bars by category, with one mark per series."""

    categories: Sequence[str] = ()
    series: Mapping[str, Sequence[Spread | None]] = field(default_factory=dict)
    zero: bool = False
    """Whether to draw a line at zero difference."""

    @property
    def keys(self) -> Sequence[str]:
        return list(self.series) if len(self.series) > 1 else []

    def body(self, narrow: bool) -> float:
        text = _lines(self.categories, narrow) * LINE_IN
        return 0.6 + max(text, len(self.categories) * (0.12 + 0.14 * len(self.series)))

    def draw(self, axes: Any, narrow: bool) -> None:
        if self.zero:
            axes.axvline(0, color=INK, linewidth=1)
        gap = 0.7 / max(1, len(self.series))
        for place, (name, spreads) in enumerate(self.series.items()):
            colour, _, marker = series_style(place)
            offset = gap * (place - (len(self.series) - 1) / 2)
            known = [(row + offset, each) for row, each in enumerate(spreads) if each is not None]
            axes.errorbar(
                [each.value for _, each in known],
                [row for row, _ in known],
                xerr=[[each.value - each.low for _, each in known], [each.high - each.value for _, each in known]],
                fmt=marker, color=colour, markeredgecolor=INK, markersize=6.5, elinewidth=1.6, capsize=2.5, label=name,
            )  # fmt: skip
        _categories(axes, self.categories, narrow)
        axes.grid(axis="y", visible=False)
        for row in range(1, len(self.categories)):
            axes.axhline(row - 0.5, color=FAINT, linewidth=0.6)


@dataclass(frozen=True)
class Lines(Chart):
    """Curves over training steps."""

    series: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    """Series name → x values, y values."""
    bottom: float | None = 0.0
    top: float | None = None

    @property
    def keys(self) -> Sequence[str]:
        return list(self.series)

    def body(self, narrow: bool) -> float:
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
        axes.set_ylim(self.bottom, self.top)


@dataclass(frozen=True)
class Plane(Chart):
    """Systems by price and accuracy, with the frontier of systems that no cheaper system matches."""

    points: Sequence[Point] = ()
    frontier: Sequence[int] = ()
    """Indices of the points on the frontier, in ascending order of x."""

    @property
    def keys(self) -> Sequence[str]:
        named = [f"{letter}  {self.points[place].label}" for letter, place in zip(LETTERS, self.frontier, strict=False)]
        return [*dict.fromkeys(point.group for point in self.points), LINE, *named]

    def body(self, narrow: bool) -> float:
        return 3.2

    def draw(self, axes: Any, narrow: bool) -> None:
        for place, group in enumerate(dict.fromkeys(point.group for point in self.points)):
            colour, _, marker = series_style(place)
            own = [point for point in self.points if point.group == group]
            axes.errorbar(
                [point.x for point in own], [point.y for point in own],
                yerr=[0.0 if math.isnan(point.error) else point.error for point in own],
                fmt=marker, color=colour, markeredgecolor=INK, markersize=12 if group == "Conductor" else 8,
                elinewidth=1, capsize=2, label=group, zorder=3,
            )  # fmt: skip
        line = [self.points[place] for place in self.frontier]
        axes.step(
            [point.x for point in line], [point.y for point in line], where="post", color=INK, linewidth=1.2,
            linestyle="--", label=LINE, zorder=2,
        )  # fmt: skip
        axes.set_xscale("log")
        axes.margins(x=0.1, y=0.12)
        for letter, point, beside in zip(LETTERS, line, _beside(axes, line), strict=False):
            axes.annotate(
                letter, (point.x, point.y), xytext=beside, textcoords="offset points", fontsize=SIZE,
                fontweight="bold", ha="center", va="center", color=INK, zorder=4,
            )  # fmt: skip
            # An empty plot adds the letter and its system to the legend.
            axes.plot([], [], linestyle="none", label=f"{letter}  {point.label}")
        axes.grid(axis="y", visible=True, color=FAINT, linewidth=0.6)


def _beside(axes: Any, points: Sequence[Point]) -> list[tuple[float, float]]:
    """Offset of each point's letter in typographic points: the first of four positions that is free."""
    taken: list[tuple[float, float]] = []
    chosen = []
    size = axes.figure.dpi / 72
    for point in points:
        x, y = (each / size for each in axes.transData.transform((point.x, point.y)))
        free = [
            (dx, dy)
            for dx, dy in ((-10, 10), (11, -11), (-10, 23), (24, -11))
            if all(abs(x + dx - a) > 9 or abs(y + dy - b) > 11 for a, b in taken)
        ]
        dx, dy = free[0] if free else (-10, 10)
        taken.append((x + dx, y + dy))
        chosen.append((float(dx), float(dy)))
    return chosen
