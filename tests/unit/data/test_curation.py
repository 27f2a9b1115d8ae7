"""Curation: strata share places evenly, the mix follows disagreement, weights are preferred; the forecast of a group's
disagreement agrees with simulation and, on real outcomes, beats chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import betaln
from scipy.stats import spearmanr

from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.curation.diverse_choice import choose_diverse, draw_evenly
from ops.curation.selection import choose_mix, choose_shortlist
from ops.curation.selector import SELECTORS, SelectionEvidence
from ops.curation.selectors.proxy import compute_proxy_weights
from ops.curation.training_signal import (
    JEFFREYS_PRIOR,
    BetaDistribution,
    Tally,
    classify_agreement,
    estimate_group_signal,
    estimate_group_signals,
    fit_prior,
    make_rescue_prior,
    pool_tallies,
)
from tests.bench import selectors
from tests.unit.data.inputs import make

DOMAINS = ("math", "mmlu", "rlpr", "code")


def test_draw_shares_places_evenly_and_fills_what_a_small_stratum_cannot() -> None:
    sizes = {"a": 2, "b": 50, "c": 50}
    problems = [make(f"{name}{i}", family=name) for name, size in sizes.items() for i in range(size)]
    chosen = draw_evenly(problems, 20, seed=0)
    assert Counter(problem.family for problem in chosen) == {"a": 2, "b": 9, "c": 9}
    assert chosen == [problem for problem in problems if problem in chosen]
    assert draw_evenly(problems, 20, seed=1) != chosen
    assert draw_evenly(problems, 500, seed=0) == problems


@given(st.permutations(range(30)), st.integers(0, 40))
def test_draw_depends_on_names_not_on_order(order: list[int], count: int) -> None:
    problems = [make(str(i), f"q{i}", family=str(i % 4)) for i in range(30)]
    chosen = {p.id for p in draw_evenly([problems[i] for i in order], count, seed=3)}
    assert chosen == {p.id for p in draw_evenly(problems, count, seed=3)}
    assert len(chosen) == min(count, 30)


def candidates(count: int) -> list[Problem]:
    return [
        make(f"{domain}{i}", f"{domain} question {i} of {count}", domain=domain, family=f"f{i % 3}")
        for domain in DOMAINS
        for i in range(count)
    ]


def test_shortlist_has_the_factor_of_places_and_no_contamination() -> None:
    offered = [*candidates(30), make("planted", "how MANY primes  are below 50")]
    held_out = {"math500": [make("held-out", "How many primes are below 50?", split="test")]}
    selection = choose_shortlist(offered, held_out, Curation(per_domain=10, shortlist_factor=1.25), seed=0)
    assert Counter(problem.domain for problem in selection.problems) == dict.fromkeys(DOMAINS, 13)
    assert "planted" not in {problem.id for problem in selection.problems}
    assert [selection.report[name] for name in ("candidates", "kept", "evaluation_questions")] == [121, 120, 1]


def test_shortlist_without_enough_clean_candidates_names_the_domain() -> None:
    with pytest.raises(DataError, match=r"domain 'math': has 10 candidates, of 10, .* the mix needs 11"):
        choose_shortlist(candidates(10), {}, Curation(per_domain=11), seed=0)


def rated(problems: list[Problem], rate: Callable[[int], dict[str, float]]) -> dict[str, dict[str, Tally]]:
    """Return one sample of each worker, correct if its rate is 1."""
    numbers = {p.key: int(p.id.removeprefix(p.domain)) for p in problems}
    return {key: {worker: Tally(right, 1) for worker, right in rate(n).items()} for key, n in numbers.items()}


@pytest.mark.parametrize("selector", ["signal", "disagreement"])
def test_mix_leaves_out_what_every_worker_solves_first(selector: Any) -> None:
    problems = candidates(20)
    rates = rated(problems, lambda i: {str(worker): float(i % 4 == 0 or worker % 2) for worker in range(12)})
    classes = Counter(classify_agreement(problem, rates) for problem in problems if problem.domain == "math")
    assert classes == {"all": 5, "some": 15}
    mix = choose_mix(
        problems, SelectionEvidence(Curation(per_domain=15, selector=selector), 0, rates, rollouts_per_question=8)
    )
    assert Counter(problem.domain for problem in mix) == dict.fromkeys(DOMAINS, 15)
    assert {classify_agreement(problem, rates) for problem in mix} == {"some"}
    more = choose_mix(
        problems, SelectionEvidence(Curation(per_domain=18, selector=selector), 0, rates, rollouts_per_question=8)
    )
    assert Counter(classify_agreement(p, rates) for p in more if p.domain == "code") == {"some": 15, "all": 3}


def test_mix_keeps_problems_that_no_worker_solves_alone() -> None:
    problems = candidates(40)
    rates = rated(problems, lambda i: {"a": float(i % 2), "b": 0.0})
    mix = choose_mix(problems, SelectionEvidence(Curation(per_domain=20, selector="disagreement"), 0, rates))
    classes = Counter(classify_agreement(problem, rates) for problem in mix)
    assert classes["none"] > 20 and classes["some"] > 20


@pytest.mark.parametrize("selector", ["uniform", "diversity", "proxy"])
def test_selectors_without_responses_ignore_them(selector: Any) -> None:
    problems = candidates(20)
    rates = rated(problems, lambda i: {"a": float(i % 2)})
    curation = Curation(per_domain=10, selector=selector)
    assert not SELECTORS[selector].reads_responses
    with_rates, without = (SelectionEvidence(curation, 0, known) for known in (rates, {}))
    assert choose_mix(problems, with_rates) == choose_mix(problems, without)


def test_unmeasured_problems_are_named_so_and_kept() -> None:
    assert classify_agreement(make("1"), {}) == "unmeasured"
    assert classify_agreement(make("1"), {"mmlu/1": {"a": Tally(1, 1)}}) == "unmeasured"


def test_mix_from_too_small_a_shortlist_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"shortlist.jsonl: domain 'math'.*Materialize the shortlist again"):
        choose_mix(candidates(3), SelectionEvidence(Curation(per_domain=4), 0, {}))


# ── choice ───────────────────────────────────────────────────────────────────

WORDS = ("river", "stone", "letter", "engine", "orchard", "planet", "mirror", "thread", "harbour", "candle")


def worded(count: int) -> list[Problem]:
    """Problems of ten words each, in two subjects of three levels."""
    chance = random.Random(0)
    return [
        make(str(i), " ".join(chance.choices(WORDS, k=10)), subject=f"s{i % 2}", level=str(i % 3)) for i in range(count)
    ]


def test_the_choice_does_not_depend_on_the_order_and_follows_the_seed() -> None:
    offered = worded(120)
    weights = {problem.key: (int(problem.id) % 7) / 7 for problem in offered}
    chosen = choose_diverse(offered, weights, 30, seed=4)
    shuffled = random.Random(1).sample(offered, len(offered))
    assert {p.id for p in choose_diverse(shuffled, weights, 30, seed=4)} == {p.id for p in chosen}
    assert chosen == [problem for problem in offered if problem in chosen] and len(chosen) == 30
    assert choose_diverse(offered, weights, 30, seed=5) != chosen
    assert choose_diverse(offered, weights, 500, seed=4) == offered


def test_weight_is_preferred_and_every_stratum_covered() -> None:
    offered = worded(240)
    heavy = {problem.key for problem in offered if int(problem.id) % 5 == 0}
    weights = {problem.key: 1.0 if problem.key in heavy else 0.1 for problem in offered}
    chosen = choose_diverse(offered, weights, 36, seed=0)
    assert sum(problem.key in heavy for problem in chosen) >= 34
    counts = Counter((problem.subject, problem.level) for problem in chosen)
    assert len(counts) == 6 and min(counts.values()) >= 5
    alike = Counter((problem.subject, problem.level) for problem in choose_diverse(offered, {}, 36, seed=0))
    assert set(alike.values()) == {6}


def test_without_weights_a_repetition_is_passed_over_for_something_new() -> None:
    chance = random.Random(2)
    same = [make(f"same{i}", "the old river and the grey stone") for i in range(30)]
    new = [make(f"new{i}", " ".join(chance.sample(WORDS, 7))) for i in range(30)]
    chosen = choose_diverse([*same, *new], {}, 10, seed=0)
    assert sum(problem.id.startswith("same") for problem in chosen) <= 2


def test_places_are_filled_even_by_problems_of_no_weight() -> None:
    offered = worded(40)
    assert len(choose_diverse(offered, dict.fromkeys((p.key for p in offered), 0.0), 39, seed=0)) == 39


def test_proxies_prefer_the_middle_and_close_choices() -> None:
    levels = [make(f"l{i}", level=f"Level {i}", answer="1") for i in range(1, 6)]
    weights = compute_proxy_weights(levels)
    assert max(weights, key=lambda name: weights[name]) == "math500/l3"
    assert weights["math500/l1"] == pytest.approx(weights["math500/l5"]) == 0.2
    close = make("close", choices=("the red star", "the red moon", "the red sun", "the red sky"))
    apart = make("apart", choices=("yes", "gold", "eleven", "the moon"))
    weights = compute_proxy_weights([close, apart])
    assert weights["math500/close"] > weights["math500/apart"]
    assert compute_proxy_weights([make("alone")]) == {"math500/alone": 1.0}


@pytest.fixture(scope="module")
def outcomes() -> selectors.Outcomes:
    if not (selectors.shared() / selectors.OUTCOMES).is_file():
        pytest.skip(f"no outcomes at {selectors.shared()}")
    return selectors.load(selectors.shared())


def test_the_real_matrix_is_read_whole(outcomes: selectors.Outcomes) -> None:
    assert outcomes.passed.shape == (16, 348)
    assert 0 <= outcomes.passed.min() <= outcomes.passed.max() == 10
    assert Counter(problem.level for problem in outcomes.problems).keys() == {"easy", "medium", "hard"}


@pytest.mark.long
def test_on_real_outcomes_signal_keeps_more_disagreement_than_chance(outcomes: selectors.Outcomes) -> None:
    lines = [line.split("|") for line in selectors.selector_rows(outcomes, pools=2)]
    rows = {cells[1].strip(): [float(cell.split("%")[0]) for cell in cells[2:4]] for cells in lines}
    for group in (0, 1):
        assert rows["signal"][group] > rows["uniform"][group] + 20
        assert rows["(the best possible)"][group] >= rows[selectors.ALONE][group] >= rows["signal"][group] - 1


def test_on_real_outcomes_the_forecast_agrees_with_held_out_groups(outcomes: selectors.Outcomes) -> None:
    chance = np.random.default_rng(7)
    for group in selectors.GROUPS:
        pool = chance.permutation(len(outcomes.models))[:8].tolist()
        draw = selectors.split(outcomes, pool, 2, chance)
        guess, truth = selectors.by_prior(draw, group), selectors.disagree(draw, group)
        assert abs(guess.mean() - truth.mean()) < 0.12
        assert spearmanr(guess, truth).statistic > 0.7


def test_held_out_groups_are_drawn_without_replacement(outcomes: selectors.Outcomes) -> None:
    draw = selectors.split(outcomes, list(range(8)), 2, np.random.default_rng(0))
    chance, draws = np.random.default_rng(1), 20_000
    for group in selectors.GROUPS:
        exact = selectors.disagree(draw, group)
        for place in (0, 40, 200, 340):
            right = chance.hypergeometric(draw.right[place], draw.fresh - draw.right[place], group, draws)
            assert exact[place] == pytest.approx(((right > 0) & (right < group)).mean(), abs=0.015)


# ── forecast ─────────────────────────────────────────────────────────────────

COUNTS = st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
GROUPS = st.integers(2, 64)


@pytest.mark.parametrize("group", [2, 8, 64])
@pytest.mark.parametrize("tally", [Tally(0, 0), Tally(0, 7), Tally(3, 7), Tally(7, 7), Tally(1.5, 6.2)])
@pytest.mark.parametrize("second", [None, BetaDistribution(0.2, 3.8), BetaDistribution(2.0, 2.0)])
def test_the_closed_form_is_what_simulated_groups_do(group: int, tally: Tally, second: BetaDistribution | None) -> None:
    prior, chance, draws = BetaDistribution(0.3, 0.9), np.random.default_rng(3), 200_000
    rate = chance.beta(prior.right + tally.right, prior.wrong + tally.samples - tally.right, draws)
    helped = chance.beta(*second, draws) if second else 0.0
    right = chance.binomial(group, 1 - (1 - rate) * (1 - helped))
    simulated = ((right > 0) & (right < group)).mean()
    assert estimate_group_signal(tally, group, prior, second) == pytest.approx(simulated, abs=0.006)


@given(COUNTS, GROUPS, st.sampled_from([None, make_rescue_prior(0.05), make_rescue_prior(0.5)]))
def test_it_is_a_probability_that_grows_with_the_group(
    counts: tuple[int, int], group: int, second: BetaDistribution | None
) -> None:
    tally = Tally(*map(float, counts))
    assert (
        0
        <= estimate_group_signal(tally, group, JEFFREYS_PRIOR, second)
        <= estimate_group_signal(tally, group + 1, JEFFREYS_PRIOR, second)
        <= 1
    )


@given(COUNTS, GROUPS)
def test_right_and_wrong_are_alike_without_chains(counts: tuple[int, int], group: int) -> None:
    right, samples = counts
    tally, mirror = Tally(float(right), float(samples)), Tally(float(samples - right), float(samples))
    assert estimate_group_signal(tally, group, JEFFREYS_PRIOR, None) == pytest.approx(
        estimate_group_signal(mirror, group, JEFFREYS_PRIOR, None)
    )


def test_disagreeing_workers_have_the_highest_forecast_and_chains_add_more_without_a_solver() -> None:
    none, some, every = (estimate_group_signal(Tally(right, 7.0), 16) for right in (0.0, 3.0, 7.0))
    assert some > none > every


def test_pooling_gives_each_worker_the_same_weight() -> None:
    assert pool_tallies([Tally(1, 1), Tally(0, 1)]) == Tally(1, 2)
    assert pool_tallies([Tally(4, 4), Tally(0, 4)]) == Tally(4, 8)
    right, samples = pool_tallies([Tally(1, 1), Tally(0, 100)])
    assert right / samples == pytest.approx(0.5) and 2 < samples < 4
    assert pool_tallies([]) == pool_tallies([Tally(0, 0)]) == Tally(0, 0)


@pytest.mark.parametrize("true", [BetaDistribution(0.2, 0.6), BetaDistribution(2.0, 1.0)])
def test_the_prior_is_found_again_in_data_drawn_from_it(true: BetaDistribution) -> None:
    chance = np.random.default_rng(5)
    right = chance.binomial(8, chance.beta(*true, 3000))
    prior = fit_prior(Tally(float(count), 8.0) for count in right)
    assert prior.right == pytest.approx(true.right, rel=0.15) and prior.wrong == pytest.approx(true.wrong, rel=0.15)


@pytest.mark.parametrize(
    ("true", "seed"),
    [
        (BetaDistribution(8.8, 56.5), 3),
        (BetaDistribution(7.4, 30.4), 5),
        (BetaDistribution(18.4, 64.2), 6),
        (BetaDistribution(1.6, 9.5), 25),
    ],
)
def test_every_digit_of_the_prior_is_that_of_the_optimum(true: BetaDistribution, seed: int) -> None:
    """Digits of an optimiser that stops early would differ between processors, and with them the data."""
    chance = np.random.default_rng(seed)
    right = chance.binomial(9, chance.beta(*true, 300))

    def unlikely(logs: np.ndarray) -> float:
        a, b = np.exp(logs)
        away = ((logs - np.log(JEFFREYS_PRIOR)) ** 2).sum() / (2 * 1.5**2)
        return float(away - (betaln(a + right, b + 9 - right) - betaln(a, b)).sum())

    exact = minimize(unlikely, np.log(true), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
    assert fit_prior(Tally(float(count), 9.0) for count in right) == BetaDistribution(
        *(float(f"{value:.4g}") for value in np.exp(exact.x))
    )


def test_little_data_leave_the_prior_near_jeffreys() -> None:
    assert fit_prior([]) == JEFFREYS_PRIOR
    prior = fit_prior([Tally(1, 1)])
    assert 0.2 < prior.right < 1.5 and 0.2 < prior.wrong < 1.5


def test_the_forecast_learns_each_benchmark_apart_and_covers_unmeasured_problems() -> None:
    names = [str(number) for number in range(40)]
    easy = {f"mmlu/{name}": {"a": Tally(1, 1), "b": Tally(1, 1)} for name in names}
    mixed = {f"rlpr/{name}": {"a": Tally(1, 1), "b": Tally(0, 1)} for name in names}
    signals = estimate_group_signals({**easy, **mixed}, 8, problems=[*easy, *mixed, "mmlu/new", "rlpr/new"])
    assert signals["mmlu/0"] < signals["mmlu/new"] < signals["rlpr/new"] <= signals["rlpr/0"] + 0.1
    assert set(estimate_group_signals(easy, 8)) == set(easy)
