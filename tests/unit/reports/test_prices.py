"""The frontier, and what mixtures reach."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.statistics import Offer, frontier
from ops.reports.prices import reached_by_mixing

OFFERS = st.lists(st.builds(Offer, st.floats(1e-6, 10), st.floats(0, 1)), min_size=1, max_size=30)


@given(OFFERS)
def test_the_frontier_rises_and_no_system_is_above_it(offers: list[Offer]) -> None:
    line = [offers[place] for place in frontier(offers)]
    assert all(a.price < b.price and a.accuracy < b.accuracy for a, b in pairwise(line))
    for offer in offers:
        assert any(each.price <= offer.price and each.accuracy >= offer.accuracy for each in line)


@given(OFFERS, st.floats(0, 20))
def test_mixing_reaches_at_least_the_best_within_the_price_and_never_more_than_the_best(
    offers: list[Offer], price: float
) -> None:
    reached = reached_by_mixing(offers, price)
    assert reached <= max(offer.accuracy for offer in offers) + 1e-12
    assert all(reached >= offer.accuracy - 1e-9 for offer in offers if offer.price <= price)


def test_half_the_questions_to_each_of_two() -> None:
    offers = [Offer(1.0, 0.4), Offer(3.0, 0.8), Offer(2.0, 0.5)]
    assert reached_by_mixing(offers, 2.0) == pytest.approx(0.6)
    assert reached_by_mixing(offers, 0.5) == pytest.approx(0.2)  # the other half is not answered
    assert reached_by_mixing(offers, 9.0) == pytest.approx(0.8)
