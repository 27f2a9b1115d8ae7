"""The settings of the adaptive and the recursive stage: refusals, keys of runs, draws of workers and of problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Adaptive, Recipe, Recursive
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem
from ops.training.run.training_run import RunPlan, write_run_plan
from ops.training.stages.rounds import select_problems
from tests.unit.training.plans import QUICK, trainable
from tests.unit.training.tiny import tiny_plan, train


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"adaptive": {"reshuffle": True}}, "needs prompting.cards"),
        ({"adaptive": {"smallest": 4, "largest": 3}}, "largest = 3 is below smallest = 4"),
        ({"adaptive": {"rollouts_per_question": 5}}, "adaptive over grpo: .*not a multiple"),
        ({"adaptive": {"steps": 0}}, "greater than or equal to 1"),
        ({"adaptive": {"subset": 3}}, "Extra inputs"),
        (
            {"recursive": {"rollouts_per_question": 6, "questions_per_step": 1, "micro_batch": 4}},
            "recursive over grpo: .*not a mult",
        ),
        (
            {"recursive": {"rollouts_per_question": 5, "questions_per_step": 8, "micro_batch": 8}},
            "recursive over grpo: .*be halved",
        ),
        ({"recursive": {"benchmarks": ["math500", "history"]}}, "recursive.benchmarks names history"),
        ({"recursive": {"gamma": 1.5}}, "less than or equal to 1"),
        ({"recursive": {"limits": {"calls_ratio": 0.5}}}, "greater than or equal to 1"),
        ({"recursive": {"rounds": 3}}, "Extra inputs"),
    ],
)
def test_an_impossible_stage_is_refused_with_the_recipe(stage: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){words}"):
        Recipe.model_validate(QUICK.model_dump() | stage)


@pytest.mark.parametrize(
    "stage",
    [
        {"adaptive": {"reshuffle": True}, "prompting": QUICK.prompting.model_dump() | {"cards": True}},
        {"recursive": {"benchmarks": ["math500"]}},
    ],
)
def test_a_possible_stage_is_read_with_the_recipe(stage: dict[str, Any]) -> None:
    Recipe.model_validate(QUICK.model_dump() | stage)


@pytest.mark.parametrize(
    ("name", "stage", "change"),
    [
        ("adaptive", Adaptive(steps=7, learning_rate=1e-5), {"smallest": 2}),
        ("recursive", Recursive(steps=7, learning_rate=1e-5), {"gamma": 0.5}),
    ],
)
def test_a_section_changes_only_its_own_stages_key(
    tmp_path: Path, name: str, stage: Adaptive | Recursive, change: dict[str, Any]
) -> None:
    setup, policy = trainable(tmp_path)
    with_section = replace(setup, recipe=setup.recipe.model_copy(update={name: stage}))
    plain = write_run_plan(setup, policy)
    assert write_run_plan(with_section, policy) == plain
    folder = write_run_plan(with_section, policy, **{name: stage})
    assert folder == write_run_plan(with_section, policy, **{name: stage}) != plain
    plan = RunPlan.read(folder)
    assert getattr(plan, name) == stage
    assert (plan.recipe.grpo.steps, plan.recipe.grpo.learning_rate) == (7, 1e-5)
    assert plan.recipe.grpo.rollouts_per_step == setup.recipe.grpo.rollouts_per_step
    assert write_run_plan(with_section, policy, **{name: stage.model_copy(update=change)}) != folder
    trained_otherwise = policy.parent.with_name("quickstart-4567") / "policy"
    trained_otherwise.mkdir(parents=True)
    PolicyCard.read(policy).write(trained_otherwise)
    assert write_run_plan(with_section, trained_otherwise, **{name: stage}) != folder


def test_a_subset_larger_than_the_pool_is_refused_before_training(tmp_path: Path) -> None:
    setup, policy = trainable(tmp_path)
    with pytest.raises(ConfigError, match=r"adaptive: offers up to 10 workers, and pool 'quickstart' has 9"):
        write_run_plan(setup, policy, adaptive=Adaptive(largest=10))


def test_subsets_are_drawn_by_seed_problem_and_epoch() -> None:
    adaptive = Adaptive(smallest=2, largest=5)
    draws = {case: adaptive.draw_subset(9, *case) for case in product(range(3), "abcdef", range(20))}
    assert draws == {case: adaptive.draw_subset(9, *case) for case in draws}
    assert {len(ordinals) for ordinals in draws.values()} == {2, 3, 4, 5}
    assert {ordinal for ordinals in draws.values() for ordinal in ordinals} == set(range(9))
    assert all(list(ordinals) == sorted(set(ordinals)) for ordinals in draws.values())
    assert len(set(draws.values())) > 100
    shuffled = adaptive.model_copy(update={"reshuffle": True})
    orders = [shuffled.draw_subset(9, *case) for case in draws]
    assert [tuple(sorted(order)) for order in orders] == list(draws.values())
    assert any(list(order) != sorted(order) for order in orders)


@pytest.mark.parametrize(
    ("adaptive", "workers", "sizes"),
    [
        pytest.param(Adaptive(), 4, {1, 2, 3, 4}, id="any size"),
        pytest.param(Adaptive(smallest=2, largest=9), 5, {2, 3, 4, 5}, id="fewer workers than the largest size"),
        pytest.param(Adaptive(smallest=2, largest=9), 1, {1}, id="fewer workers than the smallest size"),
    ],
)
def test_a_subset_is_no_larger_than_the_pool(adaptive: Adaptive, workers: int, sizes: set[int]) -> None:
    assert {len(adaptive.draw_subset(workers, 1, "a", epoch)) for epoch in range(50)} == sizes


def test_a_share_of_the_questions_offers_the_whole_pool_and_the_others_the_same_subsets() -> None:
    subsets, mixed = Adaptive(largest=8), Adaptive(largest=8, whole_share=0.25)
    cases = list(product(range(3), "abcdef", range(40)))
    offers = [mixed.offer_workers(9, *case) for case in cases]
    whole = [offer == tuple(range(9)) for offer in offers]
    assert 0.2 < sum(whole) / len(cases) < 0.3
    for case, offer in zip(cases, offers, strict=True):
        assert offer in (tuple(range(9)), subsets.draw_subset(9, *case))
    assert [subsets.offer_workers(9, *case) for case in cases] == [subsets.draw_subset(9, *case) for case in cases]


def test_the_problems_are_drawn_of_the_benchmarks_that_are_named() -> None:
    mix = [
        Problem(str(number), name, "math", "train", f"{number}?", "1", "math")
        for number in range(10)
        for name in ("rlpr", "math500", "livecodebench")
    ]
    assert select_problems(mix, Recursive(), 1) == mix
    named = Recursive(benchmarks=("rlpr", "livecodebench"), per_benchmark=4)
    some = select_problems(mix, named, 1)
    assert sorted(problem.benchmark for problem in some) == ["livecodebench"] * 4 + ["rlpr"] * 4
    assert some == sorted(some, key=mix.index) == select_problems(mix, named, 1)
    assert some != select_problems(mix, named, 2)


@pytest.mark.slow
def test_too_few_problems_are_named_before_training(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, questions_per_step=4)
    plan = plan.model_copy(update={"recursive": Recursive(benchmarks=("rlpr",), per_benchmark=3)})
    with pytest.raises(DataError, match=r"holds 3 problems for the stage.*recursive\.questions_per_step"):
        train(plan, folder)
