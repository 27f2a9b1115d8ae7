"""Accuracy for what it costs: the frontier, the best at no more than a price, what mixtures of systems reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ops.reports.evidence import QuestionCost, System

Measure = Callable[[QuestionCost], float]
"""What a question may not take more of: USD, or calls."""


class Offer(NamedTuple):
    """A price a question and the accuracy that it buys, in [0, 1]."""

    price: float
    accuracy: float


def frontier(offers: Sequence[Offer]) -> list[int]:
    """The places of the offers that none is as good as for no more, by rising price and so by rising accuracy."""
    order = sorted(range(len(offers)), key=lambda place: (offers[place].price, -offers[place].accuracy))
    kept: list[int] = []
    for place in order:
        if not kept or offers[place].accuracy > offers[kept[-1]].accuracy:
            kept.append(place)
    return kept


def best_within(
    systems: Sequence[System], over: Sequence[str], measure: Measure, limit: float = float("inf")
) -> System | None:
    """The most accurate of those that take at most `limit` a question (a billionth more is rounding); None: there is
    none. Chosen on the very questions that it is compared on, which flatters it."""
    able = [system for system in systems if measure(system.price(over)) <= limit * (1 + 1e-9)]
    return max(able, key=lambda system: system.accuracy(over).mean, default=None)


def reached_by_mixing(offers: Sequence[Offer], price: float) -> float:
    """The accuracy that these offers reach at that mean price, a question going to one or another of them by lot.

    The upper concave hull of the offers and of answering nothing for nothing; beyond the dearest, the best of all.
    """
    import numpy as np

    hull: list[Offer] = [Offer(0.0, 0.0)]
    line = frontier(offers)
    for offer in (offers[place] for place in line):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], offer):
            hull.pop()
        hull.append(offer)
    return float(np.interp(price, [each.price for each in hull], [each.accuracy for each in hull]))


def _slope(a: Offer, b: Offer) -> float:
    return (b.accuracy - a.accuracy) / (b.price - a.price) if b.price > a.price else float("inf")
