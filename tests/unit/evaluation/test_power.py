"""Detectable differences and sample sizes, against hand calculation and simulated pilots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.statistics import (
    WORST_CASE,
    Components,
    SamplePlan,
    Stratum,
    detectable_paired,
    detectable_unpaired,
    sample_for,
    variance_components,
)


def test_a_detectable_difference_solves_connors_equation() -> None:
    difference = detectable_paired([Stratum(500, 0.2)], alpha=0.05, power=0.9)
    needed = (1.959964 * math.sqrt(0.2) + 1.281552 * math.sqrt(0.2 - difference**2)) ** 2 / difference**2
    assert needed == pytest.approx(500, rel=1e-5)


def test_more_questions_and_less_discordance_show_smaller_differences() -> None:
    sizes = [detectable_paired([Stratum(n, 0.2)]) for n in (30, 100, 400, 14_042)]
    assert sizes == sorted(sizes, reverse=True)
    assert detectable_paired([Stratum(100, 0.1)]) < detectable_paired([Stratum(100, 0.3)])
    assert detectable_paired([Stratum(100, 0.2)] * 4) == pytest.approx(detectable_paired([Stratum(400, 0.2)]), rel=1e-3)


def test_pairing_pays_where_systems_agree() -> None:
    # Accuracies of ½: two independent systems disagree on half of the questions.
    assert detectable_paired([Stratum(200, 0.5)]) == pytest.approx(detectable_unpaired(200), rel=0.01)
    assert detectable_paired([Stratum(200, 0.1)]) < 0.5 * detectable_unpaired(200)


def test_nothing_is_found_on_a_handful_of_questions() -> None:
    assert math.isnan(detectable_paired([Stratum(3, 0.3)]))
    assert math.isnan(detectable_unpaired(1))


@given(st.integers(10, 20_000), st.floats(0.001, 1.0), st.sampled_from([0.05, 0.01, 0.0001]), st.floats(0.5, 0.99))
def test_a_detectable_difference_is_one(n: int, discordance: float, alpha: float, power: float) -> None:
    difference = detectable_paired([Stratum(n, discordance)], alpha=alpha, power=power)
    assert math.isnan(difference) or 0 < difference <= 1


@pytest.mark.parametrize("strata", [[], [Stratum(0, 0.1)], [Stratum(10, 1.5)]])
def test_no_stratum_or_no_discordance_is_an_error(strata: list[Stratum]) -> None:
    with pytest.raises(ValueError, match="discordance in 0 … 1"):
        detectable_paired(strata)


def test_components_of_a_simulated_pilot() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(2, 3, 20_000)  # variance 1/25; mean of p(1-p) is 1/5
    repeats = rng.integers(1, 6, rates.size)
    pilot = [list(rng.binomial(1, rate, size)) for rate, size in zip(rates, repeats, strict=True)]
    assert variance_components(pilot) == (pytest.approx(0.04, abs=0.003), pytest.approx(0.2, abs=0.003))


def test_without_repeats_all_variance_counts_as_between() -> None:
    assert variance_components([[1], [0], [1], [0], []]) == (pytest.approx(1 / 3), 0.0)
    with pytest.raises(ValueError, match="at least two questions"):
        variance_components([[1, 0]])


def test_the_worst_case_by_hand() -> None:
    assert sample_for(0.05, available=500) == SamplePlan(100, 1, pytest.approx(0.05), True)
    assert sample_for(0.01, available=500) == SamplePlan(500, 1, pytest.approx(math.sqrt(0.25 / 500)), False)
    assert sample_for(10.0, available=500, components=WORST_CASE).questions == 1


def test_questions_are_repeated_only_when_they_run_out() -> None:
    pilot = Components(between=0.05, within=0.15)
    assert sample_for(0.02, 1000, pilot) == SamplePlan(500, 1, pytest.approx(0.02), True)
    few = sample_for(0.05, 30, pilot)
    assert few == SamplePlan(30, 6, pytest.approx(0.05), True)
    assert sample_for(0.05, 30, pilot, most_repeats=4) == SamplePlan(
        30, 4, pytest.approx(math.sqrt(0.0875 / 30)), False
    )
    beyond = sample_for(0.03, 30, pilot)
    assert (beyond.questions, beyond.repeats, beyond.reached) == (30, 16, False), "what questions differ by stays"


def test_a_sample_has_the_stated_error() -> None:
    rng = np.random.default_rng(2)
    pilot = Components(between=0.04, within=0.2)
    sample = sample_for(0.03, 60, pilot)
    rates = rng.beta(2, 3, (4000, sample.questions))
    means = (rng.binomial(sample.repeats, rates) / sample.repeats).mean(axis=1)
    assert np.std(means) == pytest.approx(sample.standard_error, rel=0.05)


@pytest.mark.parametrize(("error", "available", "repeats"), [(0.0, 10, 1), (0.1, 0, 1), (0.1, 10, 0)])
def test_a_sample_of_nothing_is_an_error(error: float, available: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="positive standard error"):
        sample_for(error, available, most_repeats=repeats)
