"""The oracle over single workers: the gain of hindsight, and the estimate without the winner's luck."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.evaluation.statistics import oracle_over_workers

QUESTIONS, REPEATS = 4000, 3


def answers(rates: NDArray[np.float64], repeats: int = REPEATS, seed: int = 1) -> NDArray[np.float64]:
    """Draw correct and wrong answers from success rates (questions, workers)."""
    rng = np.random.default_rng(seed)
    return rng.binomial(1, rates[..., None], (*rates.shape, repeats)).astype(float)


def test_among_equal_workers_there_is_nothing_to_choose() -> None:
    plain, fair = oracle_over_workers(answers(np.full((QUESTIONS, 5), 0.5)))
    assert fair is not None
    assert fair.mean == pytest.approx(0.5, abs=4 * fair.standard_error)
    # The best of five means of three coins, by enumeration of each.
    below = [sum(math.comb(3, k) for k in range(n + 1)) / 8 for n in range(4)]
    lucky = sum((below[n] ** 5 - (below[n - 1] ** 5 if n else 0)) * n / 3 for n in range(4))
    assert plain.mean == pytest.approx(lucky, abs=4 * plain.standard_error)
    assert plain.mean > 0.8


def test_where_each_question_has_its_expert_the_fair_one_is_unbiased_and_the_plain_one_is_not() -> None:
    rates = np.full((QUESTIONS, 4), 0.0)
    rates[np.arange(QUESTIONS), np.arange(QUESTIONS) % 4] = 0.8
    plain, fair = oracle_over_workers(answers(rates))
    assert fair is not None and plain.n == fair.n == QUESTIONS
    # One correct answer of two identifies the expert; without one, all share the score.
    known = 1 - 0.2**2
    assert fair.mean == pytest.approx(known * 0.8 + (1 - known) * 0.2, abs=4 * fair.standard_error)
    assert plain.mean == pytest.approx(0.8, abs=4 * plain.standard_error), "with one who can, luck adds nothing"


def test_the_fair_one_is_what_its_choice_gives_on_fresh_answers() -> None:
    rates = np.random.default_rng(2).beta(0.8, 1.2, (QUESTIONS, 3))
    plain, fair = oracle_over_workers(answers(rates, seed=3))
    assert fair is not None
    attained = np.mean([_attained(own, REPEATS - 1) for own in rates])
    best = rates.max(axis=1).mean()
    assert fair.mean == pytest.approx(attained, abs=4 * fair.standard_error)
    assert fair.mean < best < plain.mean - 4 * plain.standard_error, "the true oracle lies between"


def _attained(rates: NDArray[np.float64], looks: int) -> float:
    """The expected success rate of the worker with the best result in `looks` answers; ties share."""
    total = 0.0
    for rights in product(range(looks + 1), repeat=rates.size):
        chance = math.prod(
            math.comb(looks, k) * rate**k * (1 - rate) ** (looks - k) for k, rate in zip(rights, rates, strict=True)
        )
        total += chance * float(np.mean([rates[i] for i, k in enumerate(rights) if k == max(rights)]))
    return total


def test_more_repeats_bring_both_nearer_to_the_truth() -> None:
    rates = np.random.default_rng(4).beta(0.8, 1.2, (QUESTIONS, 3))
    estimates = [oracle_over_workers(answers(rates, repeats)) for repeats in (2, 4, 16)]
    widths = [plain.mean - fair.mean for plain, fair in estimates if fair is not None]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True) and widths[-1] < 0.3 * widths[0]


def test_one_repeat_gives_an_upper_bound_alone() -> None:
    plain, fair = oracle_over_workers([[[1.0], [0.0]], [[0.0], [0.0]]])
    assert (plain.mean, plain.n, fair) == (0.5, 2, None)


def test_unscorable_rows_neither_choose_nor_judge() -> None:
    lost = math.nan
    known = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    with_a_lost_worker = [*known, [lost, lost, lost]]
    assert str(oracle_over_workers([with_a_lost_worker])) == str(oracle_over_workers([known]))
    plain, fair = oracle_over_workers([[[1.0, lost], [0.0, lost]], [[1.0, 1.0], [0.0, 0.0]], [[lost] * 2] * 2])
    assert plain[::2] == (1.0, 2), "a question without answers does not count"
    assert fair is not None and fair[::2] == (1.0, 1), "and one that was answered once, nothing without hindsight"


def test_three_axes_are_needed() -> None:
    with pytest.raises(ValueError, match="three axes"):
        oracle_over_workers([[1.0, 0.0]])
