"""The drift test: its guarantee by enumeration, and whole years on a simulated clock."""

from __future__ import annotations

import math
from itertools import product

import pytest

from ops.config import Probing
from ops.retraining.drift import YEAR, Detector, threshold
from tests.bench.drift import Provider, rounds_until_alarm, simulate

PROBING = Probing()
HEALTHY = (Provider("steady", 0.98), Provider("noisy", 0.6), Provider("often away", 0.6, outages=0.2))
SWAPPED = Provider("swapped", 0.9, swapped_at=60, differs=0.25)


def coin(discordant: int) -> list[tuple[float, int, int]]:
    """Return (probability, losses, gains) of fair coins."""
    return [
        (math.comb(discordant, losses) / 2**discordant, losses, discordant - losses)
        for losses in range(discordant + 1)
    ]


@pytest.mark.parametrize("discordant", [0, 1, 3, 8])
def test_the_mean_evidence_of_an_unchanged_worker_grows_by_one_per_round(discordant: int) -> None:
    start = Detector().after(2, 1)
    after = sum(chance * start.after(losses, gains).evidence for chance, losses, gains in coin(discordant))
    assert after == pytest.approx(start.evidence + 1)


def test_the_chance_of_a_false_alarm_is_what_doobs_inequality_says() -> None:
    """All 4^5 results of five rounds with three fair coins, at a low threshold."""
    bar, rounds = 20.0, 5
    alarmed = 0.0
    for way in product(coin(3), repeat=rounds):
        detector, chance, over = Detector(), 1.0, False
        for each, losses, gains in way:
            detector, chance = detector.after(losses, gains), chance * each
            over = over or detector.evidence >= bar
        alarmed += chance * over
    assert 0 < alarmed <= rounds / bar


def test_the_threshold_is_a_years_rounds_over_the_chance() -> None:
    assert threshold(0.01) == YEAR / 0.01
    with pytest.raises(ValueError, match="between 0 and 1"):
        threshold(0.0)
    with pytest.raises(ValueError, match="losses"):
        Detector().after(-1, 0)


def test_losses_raise_an_alarm_and_gains_never_do() -> None:
    assert rounds_until_alarm([(6, 0)] * 10, 0.01) == 3
    assert rounds_until_alarm([(0, 6)] * 1000, 0.01) is None
    assert rounds_until_alarm([(6, 6)] * 1000, 0.01) is None


def test_a_long_unchanged_past_does_not_delay_the_alarm() -> None:
    """A test of the whole history would be delayed."""
    calm = [(3, 3)] * 1000
    late = rounds_until_alarm([*calm, *[(6, 1)] * 30], 0.01)
    assert late is not None and late - 1000 <= 6


@pytest.mark.parametrize("provider", HEALTHY, ids=lambda each: each.name)
def test_a_healthy_provider_is_left_alone_for_a_year(provider: Provider) -> None:
    """200 years of it: at the stated 1 %, more than 8 false alarms would come once in four thousand such tests."""
    assert simulate(provider, PROBING, simulations=200).false_alarms <= 8 / 200


def test_a_swapped_model_is_found_within_the_stated_delay() -> None:
    """Other answers to a quarter of the questions: within 14 rounds in 95 % of 500 years."""
    found = simulate(SWAPPED, PROBING, rounds=120, simulations=500)
    assert found.false_alarms <= 0.01
    delay = found.delay(0.95)
    assert delay is not None and delay <= 14


def test_the_simulated_clock_is_one_clock() -> None:
    assert simulate(SWAPPED, PROBING, rounds=90, simulations=20) == simulate(
        SWAPPED, PROBING, rounds=90, simulations=20
    )
