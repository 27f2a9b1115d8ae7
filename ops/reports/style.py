"""The style of all charts: widths, colours, hatches and markers."""

from __future__ import annotations

from typing import NamedTuple

WIDE_IN, NARROW_IN = 8.8, 3.7
"""Chart widths in inches for a desktop column and for a phone."""
INK, FAINT, SIZE = "#1f2933", "#d5dbe1", 9.0


class Look(NamedTuple):
    """Colour, hatch and marker of one series."""

    colour: str
    hatch: str
    marker: str


LOOKS = (
    Look("#0b3c5d", "", "o"),
    Look("#f2b134", "", "s"),
    Look("#6b8fb3", "////", "^"),
    Look("#a63d40", "", "D"),
    Look("#d9e2ec", "....", "v"),
    Look("#3f7d58", "\\\\\\\\", "P"),
    Look("#b7d3a8", "oo", "X"),
    Look("#5d4a7a", "xxxx", "<"),
    Look("#e9c7d6", "----", ">"),
    Look("#7a6a4f", "++++", "h"),
)
"""Adjacent styles differ in lightness; styles of similar lightness differ in hatch and marker."""


def look(place: int) -> Look:
    """The style of series number `place`, counted from 0."""
    return LOOKS[place % len(LOOKS)]
