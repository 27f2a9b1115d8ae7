"""The problems of a step: chosen in proportion to their expectations, evenly, and equally after a restart."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from ops.config import Setup, load_pool, load_recipe
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.rows import ResponseRow
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.training.step.order import ALIKE, Order, expected_variances

CONFIG = Workspace.find().config
SUBJECTS = ("facts", "sums")


def problem(number: int) -> Problem:
    return Problem(str(number), "mmlu", "mmlu", "train", f"{number}?", "A", "choice", subject=SUBJECTS[number % 2])


PROBLEMS = [problem(number) for number in range(40)]
KEYS = [problem.key for problem in PROBLEMS]


def asked(order: Order, steps: int, count: int = 4) -> list[list[str]]:
    return [[problem.key for problem in order.ask(count)] for _ in range(steps)]


def by_subject(order: Order) -> dict[str, float]:
    shares = order.shares()
    return {name: sum(shares[p.key] for p in PROBLEMS if p.subject == name) for name in SUBJECTS}


def test_equal_problems_are_all_drawn_once_before_any_repeats() -> None:
    steps = asked(Order(PROBLEMS, 1, dict.fromkeys(KEYS, 0.02)), 30)
    for epoch in range(3):
        assert sorted(key for step in steps[10 * epoch : 10 * epoch + 10] for key in step) == sorted(KEYS)
    assert steps[0] != asked(Order(PROBLEMS, 2, dict.fromkeys(KEYS, 0.02)), 1)[0]


def test_a_problem_is_asked_as_often_as_its_share_of_the_variance() -> None:
    expected = {key: 0.03 if index < 10 else 0.01 for index, key in enumerate(KEYS)}
    order = Order(PROBLEMS, 1, expected)
    steps = asked(order, 100)
    counts = Counter(key for step in steps for key in step)
    shares = order.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[KEYS[0]] == pytest.approx(ALIKE / 40 + (1 - ALIKE) * 0.03 / 0.6)
    assert all(abs(counts[key] - 400 * shares[key]) < 1 for key in KEYS)
    assert all(len(set(step)) == 4 for step in steps)


def test_rewards_correct_the_forecast_of_their_subject_and_are_forgotten() -> None:
    order = Order(PROBLEMS, 1, dict.fromkeys(KEYS, 0.02))
    assert by_subject(order) == pytest.approx({"facts": 0.5, "sums": 0.5})
    for _ in range(10):
        order.learn([(KEYS[0], 0.0), (KEYS[1], 0.02)])
    silent = by_subject(order)["facts"]
    assert 0.1 < silent < 0.2  # slightly more than the share that is spread evenly
    for _ in range(200):
        order.learn([])
    assert by_subject(order)["facts"] == pytest.approx(0.5, abs=0.01)


def test_a_problem_without_expected_signal_is_sampled_sometimes() -> None:
    expected = dict.fromkeys(KEYS, 0.02) | {KEYS[0]: 0.0}
    assert KEYS[0] in {key for step in asked(Order(PROBLEMS, 1, expected), 110) for key in step}
    assert Order(PROBLEMS, 1, dict.fromkeys(KEYS, 0.0)).shares() == pytest.approx(dict.fromkeys(KEYS, 1 / 40))


def test_an_order_of_questions_continues_from_its_state() -> None:
    """Later forecasts do not change the restored order."""
    expected = {key: 0.01 + index / 1000 for index, key in enumerate(KEYS)}
    order = Order(PROBLEMS, 1, expected)
    asked(order, 5)
    order.learn([(KEYS[0], 0.05), (KEYS[3], 0.0)])
    other = Order(PROBLEMS, 1, dict.fromkeys(KEYS, 0.02))
    other.restore(json.loads(json.dumps(order.state)))
    for going in (order, other):
        going.learn([(KEYS[1], 0.01)])
    assert asked(order, 20) == asked(other, 20)


def test_the_forecast_is_that_of_the_precached_responses(tmp_path) -> None:
    recipe, pool = load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart")
    setup = Setup(Workspace(tmp_path), recipe, pool)
    answer = Response("A", 1, 1, 0.0, 0.0, "stop")
    rows = [  # ten problems that every worker solves, ten that every other worker solves
        ResponseRow(name, "mmlu", str(number), 0, "ok", answer, float(number < 10 or place % 2))
        for number in range(20)
        for place, name in enumerate(pool.names)
    ]
    write_responses(rows, setup.workspace.data / "responses" / "all.parquet")
    expected = expected_variances(setup, PROBLEMS[:21])
    known, disputed = expected[KEYS[0]], expected[KEYS[15]]
    assert 0 < 3 * known < disputed < 0.25 / 4 + 1e-9  # a variance is largest at a probability of one half
    assert known < expected[KEYS[20]] < disputed  # never asked: counts like its benchmark
