"""Means, standard errors, paired tests, detectable differences and comparisons pooled over seeds, against hand
calculation and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from ops.results.statistics import (
    MeanEstimate,
    Stratum,
    accuracy_from_moments,
    adjust_holm,
    average_estimates,
    average_over_seeds,
    detectable_difference,
    estimate_accuracy,
    estimate_difference,
    estimate_mean,
    estimate_pooled,
    mcnemar_test,
    paired_bootstrap,
    score_interval,
    sign_flip_test,
)
from tests.unit.evaluation.simulated import within

differences = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=60)


def test_estimate_by_hand() -> None:
    # Mean 3/4; squared deviations 3·(1/16) + 9/16 = 3/4, over n-1 = 3, root = 1/2, over √4.
    assert estimate_mean([1, 1, 1, 0]) == MeanEstimate(0.75, pytest.approx(0.25), 4)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_estimate_agrees_with_scipy(values: list[float]) -> None:
    estimate = estimate_mean(values)
    assert estimate.mean == pytest.approx(np.mean(values))
    assert estimate.standard_error == pytest.approx(stats.sem(values), abs=1e-9)


def test_unknown_values_are_nan() -> None:
    assert math.isnan(estimate_mean([]).mean)
    assert math.isnan(estimate_mean([1.0]).standard_error)


def test_mean_of_benchmarks_weighs_them_alike() -> None:
    mean = average_estimates([MeanEstimate(0.4, 0.03, 10), MeanEstimate(0.8, 0.04, 1000)])
    assert mean[:3] == (pytest.approx(0.6), pytest.approx(0.025), 1010)


@pytest.mark.parametrize(("right", "n"), [(0, 24), (24, 24), (1, 24), (12, 24), (0, 1), (1, 1), (291, 300)])
def test_the_interval_of_an_accuracy_is_wilsons(right: int, n: int) -> None:
    found = estimate_accuracy([1.0] * right + [0.0] * (n - right))
    wilson = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == (pytest.approx(wilson.low, abs=1e-9), pytest.approx(wilson.high, abs=1e-9))
    assert found.low < found.high and found.low <= found.mean <= found.high
    assert found == accuracy_from_moments(*found[:3]) or n == 1


def test_none_right_of_24_reaches_up_to_14_percent() -> None:
    assert estimate_accuracy([0.0] * 24).high == pytest.approx(0.138, abs=0.001)


@pytest.mark.parametrize(("n", "answers"), [(12, 2), (24, 5), (24, 20), (100, 5)])
@pytest.mark.parametrize(("rate", "alike"), [(0.1, 0.5), (0.3, 5.0), (0.5, 0.5)])
def test_the_interval_covers_the_truth_for_clustered_answers(n: int, answers: int, rate: float, alike: float) -> None:
    """Several answers to each question, whose chance differs between questions (the more, the smaller `alike`)."""
    rng, times, covered = np.random.default_rng(n + answers), 1000, 0
    for _ in range(times):
        chances = rng.beta(rate * alike, (1 - rate) * alike, n)
        right = rng.binomial(answers, chances)
        found = estimate_accuracy(right / answers)
        covered += found.low <= rate <= found.high
    assert covered / times > 0.91 - within(times, 0.08)


def test_repeats_narrow_the_interval_only_as_far_as_they_differ() -> None:
    once, varied = estimate_accuracy([1.0, 0.0] * 20), estimate_accuracy([0.6, 0.4] * 20)
    assert varied.high - varied.low < 0.7 * (once.high - once.low)


def test_the_interval_of_a_mean_keeps_a_width_where_benchmarks_are_at_an_end() -> None:
    none, some = estimate_accuracy([0.0] * 24), estimate_accuracy([1.0] * 12 + [0.0] * 12)
    both = average_estimates([none, none])
    assert (both.mean, both.low) == (0.0, 0.0) and 0.138 / 2 < both.high < 0.138
    mixed = average_estimates([none, some])
    assert mixed.mean - mixed.low == pytest.approx((some.mean - some.low) / 2)
    assert mixed.high - mixed.mean == pytest.approx(math.hypot(none.high, some.high - some.mean) / 2)


@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.02, 0.5), (0.98, 0.3, 0.6)])
def test_the_interval_of_a_mean_of_small_benchmarks_covers_the_truth(rates: tuple[float, ...]) -> None:
    rng, times, covered = np.random.default_rng(8), 1000, 0
    for _ in range(times):
        found = average_estimates([estimate_accuracy(rng.binomial(1, rate, 25)) for rate in rates])
        covered += found.low <= np.mean(rates) <= found.high
    assert covered / times > 0.93


def test_the_interval_over_seeds_allows_for_questions_and_seeds() -> None:
    seeds = [estimate_accuracy([1.0] * right + [0.0] * (100 - right)) for right in (60, 70, 80)]
    found = average_over_seeds(seeds)
    assert found[:3] == (pytest.approx(0.7), pytest.approx(0.1 / 3**0.5), 100)
    assert found.low < 0.7 - 4.3 * 0.1 / 3**0.5 and found.low < min(seed.low for seed in seeds)
    same = average_over_seeds(seeds[:1] * 3)
    assert same.standard_error == 0 and not same.is_symmetric
    assert (same.low, same.high) == (pytest.approx(seeds[0].low), pytest.approx(seeds[0].high))
    assert average_over_seeds(seeds[:1]) == seeds[0]


def test_systems_that_agree_everywhere_have_a_difference_with_an_interval() -> None:
    found = estimate_difference([[0.0] * 24])
    assert (found.mean, found.standard_error) == (0, 0) and not found.is_symmetric
    assert -0.15 < found.low < -0.1 and 0.1 < found.high < 0.15


@pytest.mark.parametrize(
    ("right", "n", "symmetric"), [(0, 24, False), (1, 24, False), (12, 24, True), (3, 4, False), (291, 300, False),
                                  (150, 300, True), (1, 1, False)],
)  # fmt: skip
def test_a_standard_error_is_shown_only_where_it_describes_the_uncertainty(right: int, n: int, symmetric: bool) -> None:
    assert estimate_accuracy([1.0] * right + [0.0] * (n - right)).is_symmetric is symmetric


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


def test_sign_flip_by_hand() -> None:
    # Of the eight signs of three differences, two are at least as far from zero.
    assert sign_flip_test([[0.5, 0.25, 0.25]], samples=100_000) == pytest.approx(2 / 8, abs=0.006)
    assert sign_flip_test([[0.0] * 10, [0.0]]) == 1.0
    assert sign_flip_test([[1.0] * 50], samples=999) == 0.001


def test_sign_flip_agrees_with_scipys() -> None:
    values = np.random.default_rng(5).choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=40, p=[0.1, 0.1, 0.5, 0.1, 0.2])
    theirs = stats.permutation_test(
        (values, 0 * values), lambda a, b: np.mean(a - b), permutation_type="samples", rng=0
    )
    assert sign_flip_test([values], samples=20_000) == pytest.approx(theirs.pvalue, abs=0.015)


def test_holm_by_hand() -> None:
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert adjust_holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_nothing_and_bonferroni(p_values: list[float]) -> None:
    adjusted = adjust_holm(p_values)
    assert all(
        p <= q + 1e-12 <= min(1, len(p_values) * p) + 2e-12 for p, q in zip(p_values, adjusted, strict=True) if q < 1
    )
    assert [p for _, p in sorted(zip(p_values, adjusted, strict=True))] == sorted(adjusted)


def test_mcnemar_by_hand() -> None:
    # Five gains, no loss: both tails of five fair coins, 2/32.
    assert mcnemar_test([1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1]) == (5, 0, pytest.approx(0.0625))
    assert mcnemar_test([1, 0], [1, 0]).p_value == 1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_does_not_depend_on_the_order(pairs: list[tuple[bool, bool]]) -> None:
    ours, theirs = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    forward, backward = mcnemar_test(ours, theirs), mcnemar_test(theirs, ours)
    assert (forward.gains, forward.losses) == (backward.losses, backward.gains)
    assert forward.p_value == pytest.approx(backward.p_value)


def test_a_detectable_difference_solves_connors_equation() -> None:
    difference = detectable_difference([Stratum(500, 0.2)], alpha=0.05, power=0.9)
    needed = (1.959964 * math.sqrt(0.2) + 1.281552 * math.sqrt(0.2 - difference**2)) ** 2 / difference**2
    assert needed == pytest.approx(500, rel=1e-5)


def test_more_questions_and_less_discordance_show_smaller_differences() -> None:
    sizes = [detectable_difference([Stratum(n, 0.2)]) for n in (30, 100, 400, 14_042)]
    assert sizes == sorted(sizes, reverse=True)
    assert detectable_difference([Stratum(100, 0.1)]) < detectable_difference([Stratum(100, 0.3)])
    assert detectable_difference([Stratum(100, 0.2)] * 4) == pytest.approx(
        detectable_difference([Stratum(400, 0.2)]), rel=1e-3
    )


def test_nothing_is_found_on_a_handful_of_questions() -> None:
    assert math.isnan(detectable_difference([Stratum(3, 0.3)]))


@given(st.integers(10, 20_000), st.floats(0.001, 1.0), st.sampled_from([0.05, 0.01, 0.0001]), st.floats(0.5, 0.99))
def test_a_detectable_difference_is_one(n: int, discordance: float, alpha: float, power: float) -> None:
    difference = detectable_difference([Stratum(n, discordance)], alpha=alpha, power=power)
    assert math.isnan(difference) or 0 < difference <= 1


def test_one_seed_has_the_standard_error_over_questions() -> None:
    one, other = np.array([[1.0, 0, 0, 1, -1, 0]]), np.array([[0.0, 1, 1, 0]])
    found = estimate_pooled([one, other])
    errors = [estimate_mean(own[0]).standard_error for own in (one, other)]
    assert found.mean == pytest.approx((1 / 6 + 1 / 2) / 2)
    assert found.standard_error == pytest.approx(np.hypot(*errors) / 2)


def test_seeds_that_repeat_each_other_add_nothing() -> None:
    one = np.array([[1.0, 0, 0, 1, -1, 0, 1, 1]])
    assert estimate_pooled([np.repeat(one, 5, axis=0)]).standard_error == pytest.approx(
        estimate_pooled([one]).standard_error
    )


def test_seeds_that_differ_as_a_whole_count_as_few() -> None:
    found = estimate_pooled([np.repeat([[0.0], [1.0], [0.0], [1.0], [1.0]], 200, axis=1)])
    assert found.standard_error == pytest.approx(estimate_mean([0, 1, 0, 1, 1]).standard_error)
    assert found.degrees_of_freedom == pytest.approx(4) and found.p_value > 0.05


@pytest.mark.parametrize(("difference", "p_value"), [(0.0, 1.0), (1.0, 2 * 0.5**3)])
def test_differences_that_are_all_equal_leave_an_error(difference: float, p_value: float) -> None:
    """Three questions of five seeds say little, also if two systems never or always differ on them."""
    found = estimate_pooled([np.full((5, 3), difference)])
    assert (found.mean, found.p_value) == (difference, p_value)
    assert found.standard_error > 0.1 and found.detectable > 0.3


@pytest.mark.parametrize(("between", "most"), [(0.0, 0.06), (0.03, 0.07)])
def test_the_level_is_kept_with_questions_and_seeds_that_differ(between: float, most: float) -> None:
    """Two systems of equal skill: five seeds of 100 questions on three benchmarks."""
    rng, times = np.random.default_rng(0), 800

    def world() -> list[np.ndarray]:
        seeds = rng.normal(0, between, (5, 1))
        liking = [rng.normal(0, 0.3, (1, 100)) for _ in range(3)]
        chances = ([np.clip(0.3 + sign * (own + seeds) / 2, 0, 1) for own in liking] for sign in (1, -1))
        ours, theirs = ([rng.random((5, 100)) < chance for chance in side] for side in chances)
        return [a.astype(float) - b for a, b in zip(ours, theirs, strict=True)]

    rejected = sum(estimate_pooled(world()).p_value < 0.05 for _ in range(times)) / times
    assert 0.02 < rejected < most + within(times, 0.05)


@pytest.mark.parametrize(("function", "arguments", "said"), [
    *((compare, (strata,), "at least one difference")
      for compare in (paired_bootstrap, score_interval, sign_flip_test) for strata in ([], [[]], [[1.0], []])),
    (score_interval, ([[0.0, 2.0]],), "lie in -1 … 1"),
    (adjust_holm, ([0.5, math.nan],), "0 … 1"),
    (mcnemar_test, ([1, 0], [1]), "needs pairs"),
    *((detectable_difference, (strata,), "discordance in 0 … 1")
      for strata in ([], [Stratum(0, 0.1)], [Stratum(10, 1.5)])),
    *((estimate_pooled, (strata,), "at least one difference") for strata in ([], [np.zeros((0, 3))], [np.zeros(3)])),
    (estimate_pooled, ([np.zeros((2, 3)), np.zeros((3, 3))],), "the same seeds"),
])  # fmt: skip
def test_data_that_do_not_suffice_are_refused(function: Callable[..., object], arguments: tuple, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        function(*arguments)
