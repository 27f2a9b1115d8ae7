"""Compare systems at equal cost: the most accurate one within a price, and mixtures of systems."""

from __future__ import annotations

from collections.abc import Sequence

from ops.reports.evidence import System
from ops.results.statistics import PricedAccuracy, find_frontier


def find_best_within(
    systems: Sequence[System], over: Sequence[str], measure: str, limit: float = float("inf")
) -> System | None:
    """Return the most accurate system whose value of the measure, such as "cost_usd", is at most `limit` (relative
    tolerance 1e-9); None if there is none.

    The choice uses the same questions as the comparison, which favours the chosen system.
    """
    able = [system for system in systems if system.mean_values(over)[measure] <= limit * (1 + 1e-9)]
    return max(able, key=lambda system: system.mean_accuracy(over).mean, default=None)


def compute_mixture_accuracy(offers: Sequence[PricedAccuracy], price: float) -> float:
    """Return the accuracy at a mean price of `price` if each question is sent to a randomly chosen offer.

    This is the upper concave hull of the offers and of an accuracy of zero at no cost. Above the highest price it is
    the accuracy of the best offer.
    """
    import numpy as np

    hull: list[PricedAccuracy] = [PricedAccuracy(0.0, 0.0)]
    line = find_frontier(offers)
    for offer in (offers[place] for place in line):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], offer):
            hull.pop()
        hull.append(offer)
    return float(np.interp(price, [each.price for each in hull], [each.accuracy for each in hull]))


def _slope(a: PricedAccuracy, b: PricedAccuracy) -> float:
    return (b.accuracy - a.accuracy) / (b.price - a.price) if b.price > a.price else float("inf")
