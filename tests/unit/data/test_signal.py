"""The forecast of a group's disagreement: its closed form against simulation, its prior, and its ranking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.curation.signal import JEFFREYS, Beta, Tally, fit_prior, group_signal, group_signals, pooled, rescue

COUNTS = st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
GROUPS = st.integers(2, 64)


@pytest.mark.parametrize("group", [2, 8, 64])
@pytest.mark.parametrize("tally", [Tally(0, 0), Tally(0, 7), Tally(3, 7), Tally(7, 7), Tally(1.5, 6.2)])
@pytest.mark.parametrize("second", [None, Beta(0.2, 3.8), Beta(2.0, 2.0)])
def test_the_closed_form_is_what_simulated_groups_do(group: int, tally: Tally, second: Beta | None) -> None:
    prior, chance, draws = Beta(0.3, 0.9), np.random.default_rng(3), 200_000
    rate = chance.beta(prior.right + tally.right, prior.wrong + tally.samples - tally.right, draws)
    helped = chance.beta(*second, draws) if second else 0.0
    right = chance.binomial(group, 1 - (1 - rate) * (1 - helped))
    simulated = ((right > 0) & (right < group)).mean()
    assert group_signal(tally, group, prior, second) == pytest.approx(simulated, abs=0.006)


@given(COUNTS, GROUPS, st.sampled_from([None, rescue(0.05), rescue(0.5)]))
def test_it_is_a_probability_that_grows_with_the_group(
    counts: tuple[int, int], group: int, second: Beta | None
) -> None:
    tally = Tally(*map(float, counts))
    assert 0 <= group_signal(tally, group, JEFFREYS, second) <= group_signal(tally, group + 1, JEFFREYS, second) <= 1


@given(COUNTS, GROUPS)
def test_right_and_wrong_are_alike_without_chains(counts: tuple[int, int], group: int) -> None:
    right, samples = counts
    tally, mirror = Tally(float(right), float(samples)), Tally(float(samples - right), float(samples))
    assert group_signal(tally, group, JEFFREYS, None) == pytest.approx(group_signal(mirror, group, JEFFREYS, None))


def test_disagreeing_workers_have_the_highest_forecast_and_chains_add_more_without_a_solver() -> None:
    none, some, every = (group_signal(Tally(right, 7.0), 16) for right in (0.0, 3.0, 7.0))
    assert some > none > every


def test_pooling_gives_each_worker_the_same_weight() -> None:
    assert pooled([Tally(1, 1), Tally(0, 1)]) == Tally(1, 2)
    assert pooled([Tally(4, 4), Tally(0, 4)]) == Tally(4, 8)
    right, samples = pooled([Tally(1, 1), Tally(0, 100)])
    assert right / samples == pytest.approx(0.5) and 2 < samples < 4
    assert pooled([]) == pooled([Tally(0, 0)]) == Tally(0, 0)


@pytest.mark.parametrize("true", [Beta(0.2, 0.6), Beta(2.0, 1.0)])
def test_the_prior_is_found_again_in_data_drawn_from_it(true: Beta) -> None:
    chance = np.random.default_rng(5)
    right = chance.binomial(8, chance.beta(*true, 3000))
    prior = fit_prior(Tally(float(count), 8.0) for count in right)
    assert prior.right == pytest.approx(true.right, rel=0.15) and prior.wrong == pytest.approx(true.wrong, rel=0.15)


def test_little_data_leave_the_prior_near_jeffreys() -> None:
    assert fit_prior([]) == JEFFREYS
    prior = fit_prior([Tally(1, 1)])
    assert 0.2 < prior.right < 1.5 and 0.2 < prior.wrong < 1.5


def test_the_forecast_learns_each_benchmark_apart_and_covers_unmeasured_problems() -> None:
    names = [str(number) for number in range(40)]
    easy = {f"mmlu/{name}": {"a": Tally(1, 1), "b": Tally(1, 1)} for name in names}
    mixed = {f"rlpr/{name}": {"a": Tally(1, 1), "b": Tally(0, 1)} for name in names}
    signals = group_signals({**easy, **mixed}, 8, problems=[*easy, *mixed, "mmlu/new", "rlpr/new"])
    assert signals["mmlu/0"] < signals["mmlu/new"] < signals["rlpr/new"] <= signals["rlpr/0"] + 0.1
    assert set(group_signals(easy, 8)) == set(easy)
