"""Means, standard errors and paired tests, against hand calculation and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ops.evaluation.statistics import MeanEstimate, clustered, mcnemar, mean_estimate, mean_of, paired_bootstrap

differences = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=60)


def test_estimate_by_hand() -> None:
    # Mean 3/4; squared deviations 3·(1/16) + 9/16 = 3/4, over n-1 = 3, root = 1/2, over √4.
    assert mean_estimate([1, 1, 1, 0]) == MeanEstimate(0.75, pytest.approx(0.25), 4)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_estimate_agrees_with_scipy(values: list[float]) -> None:
    estimate = mean_estimate(values)
    assert estimate.mean == pytest.approx(np.mean(values))
    assert estimate.standard_error == pytest.approx(stats.sem(values), abs=1e-9)


def test_what_cannot_be_known_is_nan() -> None:
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


def test_bootstrap_is_reproducible_and_narrows_with_lower_confidence() -> None:
    strata = [[1.0, 0.0, -1.0, 1.0, 0.0] * 10]
    assert paired_bootstrap(strata) == paired_bootstrap(strata)
    wide, narrow = paired_bootstrap(strata, confidence=0.99), paired_bootstrap(strata, confidence=0.8)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_bootstrap_weighs_strata_alike() -> None:
    interval = paired_bootstrap([[1.0], [0.0] * 99])
    assert interval == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("strata", [[], [[]], [[1.0], []]])
def test_bootstrap_of_nothing_is_an_error(strata: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one difference"):
        paired_bootstrap(strata)


def test_mcnemar_by_hand() -> None:
    # Five gains, no loss: both tails of five fair coins, 2/32.
    assert mcnemar([1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1]) == (5, 0, pytest.approx(0.0625))
    assert mcnemar([1, 0], [1, 0]).p_value == 1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_does_not_care_who_is_first(pairs: list[tuple[bool, bool]]) -> None:
    ours, theirs = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    forward, backward = mcnemar(ours, theirs), mcnemar(theirs, ours)
    assert (forward.gains, forward.losses) == (backward.losses, backward.gains)
    assert forward.p_value == pytest.approx(backward.p_value)


def test_mcnemar_needs_pairs() -> None:
    with pytest.raises(ValueError, match="needs pairs"):
        mcnemar([1, 0], [1])
