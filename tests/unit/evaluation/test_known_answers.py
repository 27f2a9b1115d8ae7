"""Simulated systems of known difference: coverage of intervals, error rates of tests, and detected differences."""

from __future__ import annotations

import numpy as np
import pytest

from ops.results.statistics import (
    OVERALL,
    Stratum,
    adjust_holm,
    compute_contrasts,
    detectable_difference,
    estimate_accuracy,
    mcnemar_test,
    paired_bootstrap,
    score_interval,
    sign_flip_test,
)
from tests.unit.evaluation.simulated import World, within

SIMULATIONS, MANY = 800, 2000
SMALL, LARGE = World(2, 40, repeats=3), World(3, 100, repeats=1)


@pytest.mark.parametrize("simulations", [300, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("world", "skill"), [(SMALL, 0.5), (LARGE, 0.3)])
def test_95_percent_intervals_of_a_difference_cover_it(world: World, skill: float, simulations: int) -> None:
    ours, theirs = world.accuracies((skill, 0.0), simulations, seed=1)
    truth = world.truth(skill) - world.truth(0.0)
    for interval_of in (lambda strata: paired_bootstrap(strata, samples=1000), score_interval):
        intervals = [interval_of(list(strata)) for strata in ours - theirs]
        covered = np.mean([low <= truth <= high for _, low, high in intervals])
        assert covered == pytest.approx(0.95, abs=within(simulations, 0.95))


def test_standard_errors_over_questions_and_repeats_are_those_of_many_evaluations() -> None:
    world = World(1, 60, repeats=4)
    [accuracies] = world.accuracies((0.4,), MANY, seed=2)
    rights = np.rint(accuracies[:, 0] * 4).astype(int)
    estimates = [estimate_accuracy(row / 4) for row in rights[:500]]
    spread = float(np.std(accuracies.mean(axis=(1, 2))))
    assert np.mean([estimate.standard_error for estimate in estimates]) == pytest.approx(spread, rel=0.06)
    naive = float(np.mean([np.sqrt(e.mean * (1 - e.mean) / 240) for e in estimates]))
    assert naive < 0.75 * spread, "240 independent answers would be surer"


def test_where_one_question_in_fifty_is_lost_only_the_score_interval_knows_that_more_may_be() -> None:
    simulations = 400
    losses = np.random.default_rng(3).binomial(100, 0.02, simulations)
    strata = [np.repeat([-1.0, 0.0], [lost, 100 - lost]) for lost in losses]
    bootstrap = np.mean([paired_bootstrap([own], samples=500).low > -0.02 for own in strata])
    score = np.mean([score_interval([own]).low > -0.02 for own in strata])
    assert bootstrap > 0.1, "promised: at most 0.025"
    assert score <= 0.025 + within(simulations, 0.025)


@pytest.mark.parametrize(
    ("world", "simulations"),
    [(SMALL, SIMULATIONS), *(pytest.param(world, MANY, marks=pytest.mark.soak) for world in (SMALL, LARGE))],
)
def test_equal_systems_differ_significantly_as_often_as_stated(world: World, simulations: int) -> None:
    ours, theirs = world.accuracies((0.0, 0.0), simulations, seed=4)
    p_values = np.array([sign_flip_test(list(strata), samples=400) for strata in ours - theirs])
    for alpha in (0.01, 0.05, 0.2):
        assert np.mean(p_values <= alpha) == pytest.approx(alpha, abs=within(simulations, alpha))


def test_a_sign_flip_is_of_the_stated_size_on_five_questions_too() -> None:
    answers = np.random.default_rng(5).choice([-1.0, 1.0], (SIMULATIONS, 1, 5))
    p_values = [sign_flip_test(list(strata), samples=400) for strata in answers]
    # Five equal answers occur once in sixteen.
    assert np.mean([p <= 0.05 for p in p_values]) <= 0.05
    assert sign_flip_test([[1.0] * 5], samples=100_000) == pytest.approx(1 / 16, abs=0.004)


def test_mcnemar_errs_no_more_often_than_stated() -> None:
    ours, theirs = World(1, 150, repeats=1).accuracies((0.0, 0.0), SIMULATIONS, seed=6)
    p_values = [mcnemar_test(a[0], b[0]).p_value for a, b in zip(ours, theirs, strict=True)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + within(SIMULATIONS, 0.05)


def test_pairing_finds_what_two_samples_do_not() -> None:
    world = World(1, 80, repeats=3, liking=0.4)
    ours, theirs = (side[:, 0] for side in world.accuracies((0.4, 0.0), SIMULATIONS, seed=7))
    paired = np.mean([sign_flip_test([d], samples=400) <= 0.05 for d in ours - theirs])
    errors = np.sqrt((ours.var(axis=1, ddof=1) + theirs.var(axis=1, ddof=1)) / world.questions)
    unpaired = np.mean(np.abs(ours.mean(axis=1) - theirs.mean(axis=1)) >= 1.96 * errors)
    assert paired > unpaired + 0.2


@pytest.mark.parametrize(("benchmarks", "questions", "discordance"), [(1, 200, 0.3), (4, 60, 0.2)])
def test_at_the_detectable_difference_the_power_is_the_stated_one(
    benchmarks: int, questions: int, discordance: float
) -> None:
    difference = detectable_difference([Stratum(questions, discordance)] * benchmarks, alpha=0.05, power=0.8)
    gain, loss = (discordance + difference) / 2, (discordance - difference) / 2
    rng = np.random.default_rng(8)
    drawn = rng.multinomial(questions, [gain, loss, 1 - discordance], (SIMULATIONS, benchmarks))
    gains, losses = drawn[..., 0].sum(axis=1), drawn[..., 1].sum(axis=1)
    found = np.abs(gains - losses) >= 1.96 * np.sqrt(gains + losses)
    # A normal approximation of counts, within two points of chance.
    assert np.mean(found) == pytest.approx(0.8, abs=within(SIMULATIONS, 0.8) + 0.02)
    values = np.array([1.0, -1.0, 0.0])
    exact = [sign_flip_test([np.repeat(values, counts) for counts in one], samples=400) <= 0.05 for one in drawn]
    assert 0.7 < np.mean(exact) < np.mean(found) + 0.02, "an exact test of counts is somewhat more careful"


def test_holm_keeps_the_chance_of_any_false_claim() -> None:
    rng = np.random.default_rng(10)
    # Fourteen baselines on the same questions: dependent tests, ten of them without a true difference.
    common = rng.normal(0, 1, (MANY, 1))
    z = 0.6 * common + 0.8 * rng.normal(0, 1, (MANY, 14)) + np.where(np.arange(14) < 4, 3.5, 0.0)
    from scipy.stats import norm

    p_values = 2 * norm.sf(np.abs(z))
    adjusted = np.array([adjust_holm(p) for p in p_values])
    assert np.mean((p_values[:, 4:] <= 0.05).any(axis=1)) > 0.25, "unadjusted, one claim in four tables is false"
    assert np.mean((adjusted[:, 4:] <= 0.05).any(axis=1)) <= 0.05 + within(MANY, 0.05)
    bonferroni = np.mean(p_values[:, :4] * 14 <= 0.05)
    assert np.mean(adjusted[:, :4] <= 0.05) > bonferroni, "and finds more than Bonferroni"


def test_a_table_of_equal_systems_claims_nothing_more_often_than_stated() -> None:
    world, tables = World(3, 40, repeats=2), 60
    sides = world.accuracies((0.0,) * 4, tables, seed=11)
    false_means, false_benchmarks = 0, 0
    for table in range(tables):
        systems = {
            f"system {i}": {f"b{k}": {str(q): float(v) for q, v in enumerate(side[table, k])} for k in range(3)}
            for i, side in enumerate(sides)
        }
        rows = compute_contrasts(systems, "system 0", samples=300)
        false_means += any(row.p_adjusted <= 0.05 for row in rows if row.benchmark == OVERALL)
        false_benchmarks += any(row.p_adjusted <= 0.05 for row in rows if row.benchmark != OVERALL)
    assert max(false_means, false_benchmarks) / tables <= 0.05 + within(tables, 0.05)
