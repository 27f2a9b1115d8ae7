"""Reach of a Conductor: the ceiling counts all workers, and the strategies show successful workflows."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from ops.evaluation.reach import Reach, reach
from tests.unit.evaluation.test_report import rows


def of(problem: int, correct: bool, **changes: object):
    return rows("mmlu", 0, 1, problem_id=str(problem), correct=int(correct), **changes)


def test_the_ceiling_counts_all_workers_and_the_share_only_the_conductor() -> None:
    conductor = [*of(1, True, shape="chain"), *of(2, False, shape="single"), *of(3, False), *of(4, False)]
    cold, alone = of(2, True), [*of(1, True), *of(3, True), *of(9, True)]
    made = reach(conductor, cold, alone, ["mmlu"])
    assert made is not None
    assert made.ceiling == pytest.approx(3 / 4)  # question 9 is not among the Conductor's, and no worker solves 4
    assert made.reached == pytest.approx(1 / 3)


def test_right_if_valid_leaves_out_what_is_no_workflow() -> None:
    conductor = [*of(1, True), *of(2, False), *of(3, False, format_ok=False)]
    made = reach(conductor, (), (), ["mmlu"])
    assert made is not None
    assert made.valid == pytest.approx(2 / 3)
    assert made.right_if_valid == pytest.approx(1 / 2)


def test_a_strategy_shows_a_workflow_that_paid() -> None:
    first = of(1, True, shape="chain", completion="model_id =\n [1]")
    second = of(2, True, shape="chain", completion="paid")
    made = reach([*first, *second], (), of(1, True), ["mmlu"])
    assert made is not None
    (strategy,) = made.strategies
    assert (strategy.shape, strategy.share, strategy.where, strategy.paid) == ("chain", 1.0, "mmlu", 1)
    assert strategy.example == "paid"  # no single worker answers question 2


def test_no_example_quotes_a_confidential_benchmark() -> None:
    secret = rows("gpqa_diamond", 3, 3, shape="single")
    made = reach(secret, (), (), ["gpqa_diamond"])
    assert made is not None
    assert [strategy.example for strategy in made.strategies] == [""]


def test_nothing_scored_has_no_reach_and_a_stored_one_comes_back() -> None:
    assert reach(rows("mmlu", 1, 2), (), (), ["rlpr"]) is None
    made = reach(rows("mmlu", 1, 2, shape="tree"), (), (), ["mmlu"])
    assert made is not None
    assert Reach.stored(json.loads(json.dumps(asdict(made)))) == made
