"""One style for all pictures: widths, colours, and how series are distinguished."""

from __future__ import annotations

from typing import NamedTuple

WIDE_IN, NARROW_IN = 8.8, 3.7
"""Widths in inches: of a screen's column, and of a telephone's."""
INK, FAINT, SIZE = "#1f2933", "#d5dbe1", 9.0


class Look(NamedTuple):
    """How one series is distinguished from the others."""

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
"""Neighbours differ in lightness, and where two are alike in it, in hatch and marker."""


def look(place: int) -> Look:
    """Of the so-manieth of several."""
    return LOOKS[place % len(LOOKS)]
