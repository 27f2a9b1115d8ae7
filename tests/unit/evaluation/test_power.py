"""Detectable differences, against hand calculation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.statistics import Stratum, detectable_paired


def test_a_detectable_difference_solves_connors_equation() -> None:
    difference = detectable_paired([Stratum(500, 0.2)], alpha=0.05, power=0.9)
    needed = (1.959964 * math.sqrt(0.2) + 1.281552 * math.sqrt(0.2 - difference**2)) ** 2 / difference**2
    assert needed == pytest.approx(500, rel=1e-5)


def test_more_questions_and_less_discordance_show_smaller_differences() -> None:
    sizes = [detectable_paired([Stratum(n, 0.2)]) for n in (30, 100, 400, 14_042)]
    assert sizes == sorted(sizes, reverse=True)
    assert detectable_paired([Stratum(100, 0.1)]) < detectable_paired([Stratum(100, 0.3)])
    assert detectable_paired([Stratum(100, 0.2)] * 4) == pytest.approx(detectable_paired([Stratum(400, 0.2)]), rel=1e-3)


def test_nothing_is_found_on_a_handful_of_questions() -> None:
    assert math.isnan(detectable_paired([Stratum(3, 0.3)]))


@given(st.integers(10, 20_000), st.floats(0.001, 1.0), st.sampled_from([0.05, 0.01, 0.0001]), st.floats(0.5, 0.99))
def test_a_detectable_difference_is_one(n: int, discordance: float, alpha: float, power: float) -> None:
    difference = detectable_paired([Stratum(n, discordance)], alpha=alpha, power=power)
    assert math.isnan(difference) or 0 < difference <= 1


@pytest.mark.parametrize("strata", [[], [Stratum(0, 0.1)], [Stratum(10, 1.5)]])
def test_no_stratum_or_no_discordance_is_an_error(strata: list[Stratum]) -> None:
    with pytest.raises(ValueError, match="discordance in 0 … 1"):
        detectable_paired(strata)
