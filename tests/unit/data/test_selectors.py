"""Selection: weights are preferred, strata are covered, repetitions are avoided; on real outcomes it beats chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import spearmanr

from ops.core.problem import Problem
from ops.curation.cover import choose
from ops.curation.selectors.proxy import proxy_weights
from tests.bench import selectors

Make = Callable[..., Problem]
WORDS = ("river", "stone", "letter", "engine", "orchard", "planet", "mirror", "thread", "harbour", "candle")


def problems(make: Make, count: int) -> list[Problem]:
    """Questions of ten words each, in two subjects of three levels."""
    chance = random.Random(0)
    return [
        make(str(i), " ".join(chance.choices(WORDS, k=10)), subject=f"s{i % 2}", level=str(i % 3)) for i in range(count)
    ]


def test_the_choice_does_not_depend_on_the_order_and_follows_the_seed(make: Make) -> None:
    offered = problems(make, 120)
    weights = {problem.key: (int(problem.id) % 7) / 7 for problem in offered}
    chosen = choose(offered, weights, 30, seed=4)
    shuffled = random.Random(1).sample(offered, len(offered))
    assert {p.id for p in choose(shuffled, weights, 30, seed=4)} == {p.id for p in chosen}
    assert chosen == [problem for problem in offered if problem in chosen] and len(chosen) == 30
    assert choose(offered, weights, 30, seed=5) != chosen
    assert choose(offered, weights, 500, seed=4) == offered


def test_weight_is_preferred_and_every_stratum_covered(make: Make) -> None:
    offered = problems(make, 240)
    heavy = {problem.key for problem in offered if int(problem.id) % 5 == 0}
    weights = {problem.key: 1.0 if problem.key in heavy else 0.1 for problem in offered}
    chosen = choose(offered, weights, 36, seed=0)
    assert sum(problem.key in heavy for problem in chosen) >= 34
    counts = Counter((problem.subject, problem.level) for problem in chosen)
    assert len(counts) == 6 and min(counts.values()) >= 5
    alike = Counter((problem.subject, problem.level) for problem in choose(offered, {}, 36, seed=0))
    assert set(alike.values()) == {6}


def test_without_weights_a_repetition_is_passed_over_for_something_new(make: Make) -> None:
    chance = random.Random(2)
    same = [make(f"same{i}", "the old river and the grey stone") for i in range(30)]
    new = [make(f"new{i}", " ".join(chance.sample(WORDS, 7))) for i in range(30)]
    chosen = choose([*same, *new], {}, 10, seed=0)
    assert sum(problem.id.startswith("same") for problem in chosen) <= 2


def test_places_are_filled_even_by_problems_of_no_weight(make: Make) -> None:
    offered = problems(make, 40)
    assert len(choose(offered, dict.fromkeys((p.key for p in offered), 0.0), 39, seed=0)) == 39


def test_proxies_prefer_the_middle_and_close_choices(make: Make) -> None:
    levels = [make(f"l{i}", level=f"Level {i}", answer="1") for i in range(1, 6)]
    weights = proxy_weights(levels)
    assert max(weights, key=lambda name: weights[name]) == "math500/l3"
    assert weights["math500/l1"] == pytest.approx(weights["math500/l5"]) == 0.2
    close = make("close", choices=("the red star", "the red moon", "the red sun", "the red sky"))
    apart = make("apart", choices=("yes", "gold", "eleven", "the moon"))
    weights = proxy_weights([close, apart])
    assert weights["math500/close"] > weights["math500/apart"]
    assert proxy_weights([make("alone")]) == {"math500/alone": 1.0}


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
