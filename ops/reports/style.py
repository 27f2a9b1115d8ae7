"""The style of all charts: widths, colours, hatches and markers."""

from __future__ import annotations

from typing import NamedTuple

WIDE_IN, NARROW_IN = 8.8, 3.7
"""Chart widths in inches for a desktop column and for a phone."""
INK, FAINT, SIZE = "#1f2933", "#d5dbe1", 9.0


class SeriesStyle(NamedTuple):
    """Colour, hatch and marker of one series."""

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
"""Adjacent styles differ in lightness; styles of similar lightness differ in hatch and marker."""


def series_style(place: int) -> SeriesStyle:
    """Return the style of series number `place`, counted from 0."""
    return SERIES_STYLES[place % len(SERIES_STYLES)]
