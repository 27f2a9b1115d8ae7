"""Statistics over many systems: the table of one against the others (pairs, families, undetectable differences), and
the oracle over single workers (the gain of hindsight, and the estimate without the winner's luck)."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from ops.results.outcome_rows import OutcomeRow
from ops.results.statistics import (
    OVERALL,
    Contrast,
    adjust_holm,
    compute_contrasts,
    estimate_choice_gain,
    estimate_hindsight_gain,
    estimate_oracle,
)
from ops.results.summary import accuracy_by_question

ROW = OutcomeRow(
    benchmark="mmlu", problem_id="0", repeat=0, domain="mmlu", correct=1, format_ok=True, failure="",
    status="answered", steps=1, workers=("a",), tokens=1, cost_usd=0.0, latency_s=0.0, completion="", answer="",
    unscorable=False,
)  # fmt: skip


def means(right: int, n: int = 50, first: int = 0) -> dict[str, float]:
    return {str(i): float(i < right) for i in range(first, first + n)}


SYSTEMS = {
    "conductor": {"mmlu": means(40), "aime25": means(20, 30)},
    "guesser": {"mmlu": means(10), "aime25": means(3, 30)},
    "rival": {"mmlu": means(39), "aime25": means(21, 30), "livecodebench": means(5)},
}


def table() -> dict[tuple[str, str], Contrast]:
    return {(row.system, row.benchmark): row for row in compute_contrasts(SYSTEMS, "conductor", samples=2000)}


def test_rows_come_by_system_with_the_mean_first_and_shared_benchmarks_only() -> None:
    assert list(table()) == [
        ("guesser", OVERALL), ("guesser", "mmlu"), ("guesser", "aime25"),
        ("rival", OVERALL), ("rival", "mmlu"), ("rival", "aime25"),
    ]  # fmt: skip


def test_a_difference_by_hand() -> None:
    rows = table()
    assert rows["guesser", "mmlu"].difference == pytest.approx(0.6)
    assert rows["guesser", "aime25"].difference == pytest.approx(17 / 30)
    assert rows["guesser", OVERALL].difference == pytest.approx((0.6 + 17 / 30) / 2)
    assert rows["guesser", OVERALL].n == 80
    assert rows["guesser", "mmlu"].mcnemar == (30, 0, pytest.approx(2**-29))
    assert rows["guesser", OVERALL].mcnemar is None
    assert rows["guesser", "mmlu"].low < 0.6 < rows["guesser", "mmlu"].high
    assert rows["rival", "mmlu"].p_value == 1.0, "one question alone may fall either way"


def test_p_values_are_adjusted_in_two_families() -> None:
    rows = list(table().values())
    for overall in (True, False):
        family = [row for row in rows if (row.benchmark == OVERALL) is overall]
        assert [row.p_adjusted for row in family] == pytest.approx(adjust_holm([row.p_value for row in family]))
        assert any(row.p_adjusted > row.p_value for row in family)


def test_the_detectable_difference_depends_on_size_and_discordance() -> None:
    rows = table()
    assert 0 < rows["rival", OVERALL].detectable < rows["rival", "aime25"].detectable < 0.3
    assert rows["rival", "mmlu"].detectable < rows["guesser", "mmlu"].detectable


def test_only_shared_questions_are_paired() -> None:
    shifted = {"ours": {"mmlu": means(40)}, "theirs": {"mmlu": means(0, 50, first=30)}, "absent": {"mmlu": {}}}
    [overall, mmlu] = compute_contrasts(shifted, "ours", samples=500)
    assert (overall.system, mmlu.n, mmlu.difference) == ("theirs", 20, 0.5)


def test_a_system_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        compute_contrasts(SYSTEMS, "absent")


def test_question_means_leave_out_what_could_not_be_scored() -> None:
    rows = [
        ROW, replace(ROW, repeat=1, correct=0), replace(ROW, repeat=2, correct=0, unscorable=True),
        replace(ROW, problem_id="1", unscorable=True), replace(ROW, benchmark="aime25", correct=0),
    ]  # fmt: skip
    assert accuracy_by_question(rows) == {"mmlu": {"0": 0.5}, "aime25": {"0": 0.0}}


def test_one_question_gives_a_difference_with_a_wide_interval() -> None:
    [overall, _] = compute_contrasts({"a": {"mmlu": {"0": 1.0}}, "b": {"mmlu": {"0": 0.0}}}, "a", samples=100)
    assert overall.difference == 1.0 and overall.p_value == 1.0
    assert overall.low < -0.5 and overall.high == 1.0 and math.isnan(overall.standard_error)


def test_systems_that_never_differ_have_an_interval_nevertheless() -> None:
    same = {"mmlu": {str(question): 1.0 for question in range(24)}}
    [overall, _] = compute_contrasts({"a": same, "b": same}, "a", samples=100)
    assert overall.difference == 0 and overall.low < -0.1 and overall.high > 0.1


# ── the oracle ────────────────────────────────────────────────────────────────────

QUESTIONS, REPEATS = 4000, 3


def answers(rates: NDArray[np.float64], repeats: int = REPEATS, seed: int = 1) -> NDArray[np.float64]:
    """Draw correct and wrong answers from success rates (questions, workers)."""
    rng = np.random.default_rng(seed)
    return rng.binomial(1, rates[..., None], (*rates.shape, repeats)).astype(float)


def test_among_equal_workers_there_is_nothing_to_choose() -> None:
    plain, fair, _ = estimate_oracle(answers(np.full((QUESTIONS, 5), 0.5)))
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
    plain, fair, _ = estimate_oracle(answers(rates))
    assert fair is not None and plain.n == fair.n == QUESTIONS
    # One correct answer of two identifies the expert; without one, all share the score.
    known = 1 - 0.2**2
    assert fair.mean == pytest.approx(known * 0.8 + (1 - known) * 0.2, abs=4 * fair.standard_error)
    assert plain.mean == pytest.approx(0.8, abs=4 * plain.standard_error), "with one who can, luck adds nothing"


def test_the_fair_one_is_what_its_choice_gives_on_fresh_answers() -> None:
    rates = np.random.default_rng(2).beta(0.8, 1.2, (QUESTIONS, 3))
    plain, fair, _ = estimate_oracle(answers(rates, seed=3))
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
    estimates = [estimate_oracle(answers(rates, repeats)) for repeats in (2, 4, 16)]
    widths = [plain.mean - fair.mean for plain, fair, _ in estimates if fair is not None]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True) and widths[-1] < 0.3 * widths[0]


def test_one_repeat_gives_an_upper_bound_alone() -> None:
    plain, fair, by_chance = estimate_oracle([[[1.0], [0.0]], [[0.0], [0.0]]])
    assert (plain.mean, plain.n, fair) == (0.5, 2, None)
    assert by_chance == pytest.approx(0.5, abs=0.01), "a worker that is never right adds no luck"


@pytest.mark.parametrize(("spread", "skills"), [(0.0, (0.5, 0.5, 0.5)), (2.0, (0.6, 0.5, 0.4)), (6.0, (0.7, 0.7, 0.2))])
def test_what_chance_gives_is_the_plain_oracle_of_workers_that_find_the_same_questions_hard(
    spread: float, skills: tuple[float, ...]
) -> None:
    difficulty = np.random.default_rng(6).normal(size=(QUESTIONS, 1))
    rates = ndtr(ndtri(np.array(skills)) * math.hypot(1, spread) + spread * difficulty)
    plain, _, by_chance = estimate_oracle(answers(rates, 1, seed=7))
    assert by_chance == pytest.approx(plain.mean, abs=4 * plain.standard_error)
    assert np.isclose(rates.max(axis=1).mean(), rates[:, 0].mean()), "the best worker is the best everywhere"


def test_ties_go_to_the_worker_that_is_better_elsewhere() -> None:
    """The better worker of two that agree on a question is chosen, so that the oracle is not below the best worker."""
    rates = np.tile([0.9, 0.6], (QUESTIONS, 1))
    _, fair, _ = estimate_oracle(answers(rates, 2))
    assert fair is not None and fair.mean == pytest.approx(0.9, abs=4 * fair.standard_error)


# ── the gain of a choice ──────────────────────────────────────────────────────────


def test_the_gain_of_a_choice_among_experts_is_found_by_repeats_and_by_subjects() -> None:
    expert = np.arange(600) % 3
    rates = np.where(np.arange(3) == expert[:, None], 0.9, 0.2)
    once, twice = answers(rates, 1), answers(rates, 2)
    by_repeats = estimate_choice_gain([twice])
    assert by_repeats.low > 0.1 and by_repeats.high < 0.9 - rates.mean()
    by_subjects = estimate_choice_gain([once], subjects=[[str(each) for each in expert]])
    assert by_subjects.low < 0.9 - rates.mean() < by_subjects.high and by_subjects.low > 0.3
    blind = estimate_choice_gain([once])
    assert blind.low < 0 < blind.high
    assert estimate_hindsight_gain([once]).high > 0.9 - rates.mean()


def test_the_gain_of_a_further_worker() -> None:
    rates = np.full((400, 3), 0.0)
    rates[np.arange(400), np.arange(400) % 2] = 0.9  # the third worker is never right
    drawn = answers(rates, 2)
    useless, useful = estimate_choice_gain([drawn], over=[0, 1]), estimate_choice_gain([drawn], over=[0, 2])
    assert useless.mean == pytest.approx(0, abs=0.02) and useless.low < 0
    assert useful.low > 0.3


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_the_gain_of_a_choice_among_equal_workers_holds_its_level(repeats: int) -> None:
    rng, times = np.random.default_rng(repeats), 200
    equal = [np.repeat(rng.beta(0.3, 0.3, (80, 1)), 4, axis=1) for _ in range(times)]
    found = [estimate_choice_gain([answers(own, repeats, seed)], confidence=0.9) for seed, own in enumerate(equal)]
    assert sum(each.low > 0 for each in found) <= 0.05 * times + 3 * (0.05 * 0.95 * times) ** 0.5
    assert np.mean([each.mean for each in found]) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("outcomes", [[[[1.0], [0.0]]], [[[math.nan], [math.nan]]], np.zeros((0, 2, 1))])
def test_where_nothing_can_be_judged_the_gain_is_unknown(outcomes: ArrayLike) -> None:
    assert estimate_choice_gain([outcomes]) == (0.0, -1.0, 1.0)


def test_unscorable_rows_neither_choose_nor_judge() -> None:
    lost = math.nan
    known = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    with_a_lost_worker = [*known, [lost, lost, lost]]
    assert str(estimate_oracle([with_a_lost_worker])) == str(estimate_oracle([known]))
    plain, fair, _ = estimate_oracle([[[1.0, lost], [0.0, lost]], [[1.0, 1.0], [0.0, 0.0]], [[lost] * 2] * 2])
    assert (plain.mean, plain.n) == (1.0, 2), "a question without answers does not count"
    assert fair is not None
    assert (fair.mean, fair.n) == (1.0, 1), "and one that was answered once, nothing without hindsight"


def test_three_axes_are_needed() -> None:
    with pytest.raises(ValueError, match="three axes"):
        estimate_oracle([[1.0, 0.0]])
