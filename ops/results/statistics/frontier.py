"""The Pareto frontier of price and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PricedAccuracy(NamedTuple):
    """A price per question in USD, and the accuracy in [0, 1] at that price."""

    price: float
    accuracy: float


def find_frontier(offers: Sequence[PricedAccuracy]) -> list[int]:
    """Return the indices of the offers on the Pareto frontier, by ascending price.

    An offer is on the frontier if no other one at an equal or lower price has at least its accuracy.
    """
    order = sorted(range(len(offers)), key=lambda index: (offers[index].price, -offers[index].accuracy))
    kept: list[int] = []
    for index in order:
        if not kept or offers[index].accuracy > offers[kept[-1]].accuracy:
            kept.append(index)
    return kept
