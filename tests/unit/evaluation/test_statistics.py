"""Means, standard errors and paired tests, against hand calculation and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from ops.evaluation.statistics import (
    MeanEstimate,
    clustered,
    holm,
    mcnemar,
    mean_estimate,
    mean_of,
    paired_bootstrap,
    score_interval,
    sign_flip,
)

differences = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=60)


def test_estimate_by_hand() -> None:
    # Mean 3/4; squared deviations 3·(1/16) + 9/16 = 3/4, over n-1 = 3, root = 1/2, over √4.
    assert mean_estimate([1, 1, 1, 0]) == MeanEstimate(0.75, pytest.approx(0.25), 4)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_estimate_agrees_with_scipy(values: list[float]) -> None:
    estimate = mean_estimate(values)
    assert estimate.mean == pytest.approx(np.mean(values))
    assert estimate.standard_error == pytest.approx(stats.sem(values), abs=1e-9)


def test_unknown_values_are_nan() -> None:
    assert math.isnan(mean_estimate([]).mean)
    assert math.isnan(mean_estimate([1.0]).standard_error)


def test_repeats_of_a_question_add_no_certainty() -> None:
    once = clustered([[1], [0], [1], [0]])
    four_times = clustered([[1] * 4, [0] * 4, [1] * 4, [0] * 4])
    assert four_times == once
    assert clustered([[1, 0], [], [1]]) == mean_estimate([0.5, 1.0])


def test_mean_of_benchmarks_weighs_them_alike() -> None:
    mean = mean_of([MeanEstimate(0.4, 0.03, 10), MeanEstimate(0.8, 0.04, 1000)])
    assert mean == MeanEstimate(pytest.approx(0.6), pytest.approx(0.025), 1010)


@settings(max_examples=25, deadline=None)
@given(st.lists(differences, min_size=1, max_size=3), st.integers(0, 5))
def test_bootstrap_of_swapped_sides_is_mirrored(strata: list[list[float]], seed: int) -> None:
    ours = paired_bootstrap(strata, samples=4000, seed=seed)
    theirs = paired_bootstrap([[-d for d in stratum] for stratum in strata], samples=4000, seed=seed)
    assert theirs.mean == pytest.approx(-ours.mean)
    width = max(ours.high - ours.low, 1e-9)
    assert theirs.low == pytest.approx(-ours.high, abs=0.25 * width)
    assert theirs.high == pytest.approx(-ours.low, abs=0.25 * width)
    assert ours.low <= ours.mean + 1e-9 and ours.mean - 1e-9 <= ours.high


def test_bootstrap_agrees_with_scipys() -> None:
    values = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], size=200, p=[0.1, 0.6, 0.3])
    ours = paired_bootstrap([values], samples=20_000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=0)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.006)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.006)


def test_bootstrap_of_few_questions_is_as_wide_as_students_interval() -> None:
    values = np.random.default_rng(4).normal(0, 0.2, size=12)
    ours = paired_bootstrap([values], samples=50_000)
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    plain = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    assert ours.high - ours.low == pytest.approx(high - low, rel=0.05)
    assert plain.high - plain.low < 0.9 * (high - low)


def test_bootstrap_is_reproducible_and_narrows_with_lower_confidence() -> None:
    strata = [[1.0, 0.0, -1.0, 1.0, 0.0] * 10]
    assert paired_bootstrap(strata) == paired_bootstrap(strata)
    wide, narrow = paired_bootstrap(strata, confidence=0.99), paired_bootstrap(strata, confidence=0.8)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_bootstrap_weighs_strata_alike() -> None:
    assert paired_bootstrap([[1.0] * 2, [0.0] * 99]) == (0.5, 0.5, 0.5)


def test_one_question_has_no_spread_to_draw_from() -> None:
    interval = paired_bootstrap([[1.0], [0.0, 1.0]])
    assert interval.mean == 0.75 and math.isnan(interval.low) and math.isnan(interval.high)


@pytest.mark.parametrize("strata", [[], [[]], [[1.0], []]])
@pytest.mark.parametrize("compare", [paired_bootstrap, score_interval, sign_flip])
def test_a_comparison_of_nothing_is_an_error(strata: list[list[float]], compare: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="at least one difference"):
        compare(strata)


def test_score_interval_of_agreement_is_wilsons() -> None:
    interval = score_interval([[0.0] * 101])
    n, z = 101, stats.norm.isf(0.025)
    # Nothing of 101 pairs; the variance of a true share p is p(1-p)/(n-1) here.
    assert interval == (0.0, pytest.approx(-(z**2) / (n - 1 + z**2), rel=1e-4), pytest.approx(-interval.low))


def test_score_interval_takes_the_most_likely_discordance() -> None:
    """Compute its ends in another way: maximise the likelihood of gains and losses numerically."""
    gains, losses, n = 9, 4, 120

    def statistic(difference: float) -> float:
        def unlikelihood(lost: float) -> float:
            gained = lost + difference
            return -(
                gains * math.log(gained) + losses * math.log(lost) + (n - gains - losses) * math.log1p(-lost - gained)
            )

        least = max(0.0, -difference)
        lost = optimize.minimize_scalar(
            unlikelihood, bounds=(least + 1e-9, (1 - difference) / 2 - 1e-9), method="bounded", options={"xatol": 1e-10}
        ).x
        variance = (2 * lost + difference - difference**2) / (n - 1)
        return ((gains - losses) / n - difference) / math.sqrt(variance)

    z = stats.norm.isf(0.025)
    low, high = (
        optimize.brentq(lambda d: statistic(d) - z, -0.5, 0.0),
        optimize.brentq(lambda d: statistic(d) + z, 0.06, 0.5),
    )
    strata = [np.repeat([1.0, -1.0, 0.0], [gains, losses, n - gains - losses])]
    assert score_interval(strata) == (pytest.approx(5 / n), pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@settings(deadline=None)
@given(st.lists(differences, min_size=1, max_size=3), st.sampled_from([0.8, 0.95, 0.99999]))
def test_score_interval_holds_its_mean_and_mirrors(strata: list[list[float]], confidence: float) -> None:
    ours = score_interval(strata, confidence=confidence)
    theirs = score_interval([[-d for d in stratum] for stratum in strata], confidence=confidence)
    assert -1 <= ours.low < ours.mean or ours.mean == ours.low == -1
    assert ours.mean < ours.high <= 1 or ours.mean == ours.high == 1
    assert (theirs.low, theirs.high) == (pytest.approx(-ours.high), pytest.approx(-ours.low))


def test_score_interval_widens_with_confidence_and_narrows_with_questions() -> None:
    values = [1.0, 0.0, -1.0, 0.0, 0.0] * 10
    lows = [score_interval([values], confidence=c).low for c in (0.8, 0.95, 0.999, 0.9999999)]
    assert lows == sorted(lows, reverse=True) and lows[-1] > -1
    assert score_interval([values * 10]).low > score_interval([values]).low


def test_score_interval_is_of_accuracies() -> None:
    with pytest.raises(ValueError, match="lie in -1 … 1"):
        score_interval([[0.0, 2.0]])


def test_sign_flip_by_hand() -> None:
    # Of the eight signs of three differences, two are at least as far from zero.
    assert sign_flip([[0.5, 0.25, 0.25]], samples=100_000) == pytest.approx(2 / 8, abs=0.006)
    assert sign_flip([[0.0] * 10, [0.0]]) == 1.0
    assert sign_flip([[1.0] * 50], samples=999) == 0.001


def test_sign_flip_agrees_with_scipys() -> None:
    values = np.random.default_rng(5).choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=40, p=[0.1, 0.1, 0.5, 0.1, 0.2])
    theirs = stats.permutation_test(
        (values, 0 * values), lambda a, b: np.mean(a - b), permutation_type="samples", rng=0
    )
    assert sign_flip([values], samples=20_000) == pytest.approx(theirs.pvalue, abs=0.015)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([]).size == 0
    with pytest.raises(ValueError, match="0 … 1"):
        holm([0.5, math.nan])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_nothing_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(
        p <= q + 1e-12 <= min(1, len(p_values) * p) + 2e-12 for p, q in zip(p_values, adjusted, strict=True) if q < 1
    )
    assert [p for _, p in sorted(zip(p_values, adjusted, strict=True))] == sorted(adjusted)


def test_mcnemar_by_hand() -> None:
    # Five gains, no loss: both tails of five fair coins, 2/32.
    assert mcnemar([1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1]) == (5, 0, pytest.approx(0.0625))
    assert mcnemar([1, 0], [1, 0]).p_value == 1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_does_not_depend_on_the_order(pairs: list[tuple[bool, bool]]) -> None:
    ours, theirs = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    forward, backward = mcnemar(ours, theirs), mcnemar(theirs, ours)
    assert (forward.gains, forward.losses) == (backward.losses, backward.gains)
    assert forward.p_value == pytest.approx(backward.p_value)


def test_mcnemar_needs_pairs() -> None:
    with pytest.raises(ValueError, match="needs pairs"):
        mcnemar([1, 0], [1])
