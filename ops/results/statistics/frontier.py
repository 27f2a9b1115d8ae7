"""The frontier of price and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PricedAccuracy(NamedTuple):
    """A price per question and the accuracy in [0, 1] at that price."""

    price: float
    accuracy: float


def find_frontier(offers: Sequence[PricedAccuracy]) -> list[int]:
    """Indices of the offers that no other offer matches at an equal or lower price, by ascending price."""
    order = sorted(range(len(offers)), key=lambda place: (offers[place].price, -offers[place].accuracy))
    kept: list[int] = []
    for place in order:
        if not kept or offers[place].accuracy > offers[kept[-1]].accuracy:
            kept.append(place)
    return kept
