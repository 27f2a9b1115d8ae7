"""The comparison pooled over seeds, with clusters of questions and of seeds."""

from __future__ import annotations

import numpy as np
import pytest

from ops.evaluation.statistics import mean_estimate, pooled
from tests.unit.evaluation.simulated import within


def test_one_seed_has_the_standard_error_over_questions() -> None:
    one, other = np.array([[1.0, 0, 0, 1, -1, 0]]), np.array([[0.0, 1, 1, 0]])
    found = pooled([one, other])
    errors = [mean_estimate(own[0]).standard_error for own in (one, other)]
    assert found.mean == pytest.approx((1 / 6 + 1 / 2) / 2)
    assert found.standard_error == pytest.approx(np.hypot(*errors) / 2)


def test_seeds_that_repeat_each_other_add_nothing() -> None:
    one = np.array([[1.0, 0, 0, 1, -1, 0, 1, 1]])
    assert pooled([np.repeat(one, 5, axis=0)]).standard_error == pytest.approx(pooled([one]).standard_error)


def test_seeds_that_differ_as_a_whole_count_as_few() -> None:
    found = pooled([np.repeat([[0.0], [1.0], [0.0], [1.0], [1.0]], 200, axis=1)])
    assert found.standard_error == pytest.approx(mean_estimate([0, 1, 0, 1, 1]).standard_error)
    assert found.freedom == pytest.approx(4) and found.p_value > 0.05


def test_no_difference_at_all() -> None:
    assert pooled([np.zeros((5, 3))])[:3] == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("strata", [[], [np.zeros((0, 3))], [np.zeros(3)], [np.zeros((2, 3)), np.zeros((3, 3))]])
def test_what_cannot_be_pooled_is_refused(strata: list[np.ndarray]) -> None:
    with pytest.raises(ValueError):
        pooled(strata)


@pytest.mark.parametrize(("between", "most"), [(0.0, 0.06), (0.03, 0.07)])
def test_the_level_is_kept_with_questions_and_seeds_that_differ(between: float, most: float) -> None:
    """Two systems of equal skill: five seeds of 100 questions on three benchmarks."""
    rng, times = np.random.default_rng(0), 800

    def world() -> list[np.ndarray]:
        seeds = rng.normal(0, between, (5, 1))
        liking = [rng.normal(0, 0.3, (1, 100)) for _ in range(3)]
        chances = [np.clip(0.3 + (own + seeds) / 2, 0, 1) for own in liking], [
            np.clip(0.3 - (own + seeds) / 2, 0, 1) for own in liking
        ]
        ours, theirs = ([rng.random((5, 100)) < chance for chance in side] for side in chances)
        return [a.astype(float) - b for a, b in zip(ours, theirs, strict=True)]

    rejected = sum(pooled(world()).p_value < 0.05 for _ in range(times)) / times
    assert 0.02 < rejected < most + within(times, 0.05)
