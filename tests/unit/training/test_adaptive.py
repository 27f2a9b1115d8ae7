"""The adaptive stage: GRPO in which every question offers a random subset of the workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.conductor.rollout import Rollout, roll_out
from ops.config import Adaptive, Recipe, Setup, load_pool, load_recipe
from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.training.grpo.dataset import epochs
from ops.training.rewards import outage
from ops.training.run.plan import CURVE, RunPlan, write_run
from ops.workflow.literals import FormatFailure
from ops.workflow.team import Team
from tests.unit.training.tiny import tiny_plan, train

CONFIG = Workspace.find().config
STEPS = 6  # two questions per step; the eight problems make an epoch of four steps


@dataclass
class Trained:
    """The rollouts of one run as they were executed, step by step."""

    folder: Path
    steps: list[tuple[list[str], list[Team], list[Rollout]]] = field(default_factory=list)

    @property
    def offers(self) -> list[list[tuple[str, tuple[int, ...]]]]:
        """Return (problem, ordinals on offer) of each rollout, step by step."""
        return [
            [(key, tuple(team.ordinals)) for key, team in zip(keys, teams, strict=True)]
            for keys, teams, _ in self.steps
        ]

    @property
    def rewards(self) -> list[float]:
        lines = (self.folder / CURVE).read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["reward"] for line in lines]


def trained(folder: Path, *, cut_at: int | None = None, seed: int = 1) -> Trained:
    folder.mkdir()
    plan, run_folder = tiny_plan(folder, steps=STEPS, learning_rate=1e-3)
    recipe = plan.recipe.model_copy(update={"seed": seed})
    plan = plan.model_copy(update={"adaptive": Adaptive(steps=STEPS), "recipe": recipe})
    made = Trained(run_folder)

    async def recording(texts: Sequence[str], problems: Sequence[Problem], team: Sequence[Team], **more: Any) -> Any:
        rollouts = await roll_out(texts, problems, team, **more)
        made.steps.append(([problem.key for problem in problems], list(team), rollouts))
        return rollouts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outage, "roll_out", recording)
        train(plan, run_folder, cut_at)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("adaptive") / "whole")


@pytest.mark.slow
def test_every_rollout_is_read_and_executed_by_what_its_prompt_offered(whole: Trained) -> None:
    executed = refused = 0
    for keys, teams, rollouts in whole.steps:
        for key, team, rollout in zip(keys, teams, rollouts, strict=True):
            names = {team.names[ordinal] for ordinal in team.ordinals}
            if rollout.trace is not None:
                executed += 1
                assert {step.worker for step in rollout.trace.steps} <= names, key
            if rollout.parsed.failure == FormatFailure.UNKNOWN_WORKER:
                refused += 1
                assert rollout.reward == 0.0
    assert executed and refused  # the policy names a single worker, which is sometimes on offer


@pytest.mark.slow
def test_a_group_shares_its_offer_and_epochs_differ(whole: Trained) -> None:
    offers: dict[str, list[tuple[int, ...]]] = {}
    for step in whole.offers:
        assert len(set(step)) == 2 and len(step) == 8  # two questions of four rollouts
        for key, ordinals in sorted(set(step)):
            offers.setdefault(key, []).append(ordinals)
    assert len(offers) == 8  # the first epoch asks every problem
    again = [both for both in offers.values() if len(both) == 2]
    assert len(again) == 4 and any(first != second for first, second in again)


@pytest.mark.slow
def test_an_interrupted_run_has_the_same_offers_and_rewards(whole: Trained, tmp_path: Path) -> None:
    resumed = trained(tmp_path / "cut", cut_at=3)
    assert len(resumed.offers) == STEPS + 1  # the third step ended before its checkpoint, and is repeated
    assert resumed.offers[:3] + resumed.offers[4:] == whole.offers
    assert resumed.rewards == whole.rewards


@pytest.mark.slow
def test_the_policys_card_has_the_total_of_its_steps(whole: Trained) -> None:
    assert PolicyCard.read(whole.folder / "policy").trained_steps == STEPS


def test_subsets_are_drawn_by_seed_problem_and_epoch() -> None:
    adaptive = Adaptive(smallest=2, largest=5)
    cases = product(range(3), "abcdef", range(20))
    draws = {case: adaptive.drawn(9, *case) for case in cases}
    assert draws == {case: adaptive.drawn(9, *case) for case in draws}
    assert {len(ordinals) for ordinals in draws.values()} == {2, 3, 4, 5}
    assert {ordinal for ordinals in draws.values() for ordinal in ordinals} == set(range(9))
    assert all(list(ordinals) == sorted(set(ordinals)) for ordinals in draws.values())
    assert len(set(draws.values())) > 100
    shuffled = adaptive.model_copy(update={"reshuffle": True})
    orders = [shuffled.drawn(9, *case) for case in draws]
    assert [tuple(sorted(order)) for order in orders] == list(draws.values())
    assert any(list(order) != sorted(order) for order in orders)
    assert {len(Adaptive().drawn(4, 1, "a", epoch)) for epoch in range(50)} == {1, 2, 3, 4}


def test_a_share_of_the_questions_offers_the_whole_pool_and_the_others_the_same_subsets() -> None:
    subsets, mixed = Adaptive(largest=8), Adaptive(largest=8, whole_share=0.25)
    cases = list(product(range(3), "abcdef", range(40)))
    offers = [mixed.offered(9, *case) for case in cases]
    whole = [offer == tuple(range(9)) for offer in offers]
    assert 0.2 < sum(whole) / len(cases) < 0.3
    for case, offer in zip(cases, offers, strict=True):
        assert offer in (tuple(range(9)), subsets.drawn(9, *case))
    assert [subsets.offered(9, *case) for case in cases] == [subsets.drawn(9, *case) for case in cases]


def test_epochs_are_whole_steps() -> None:
    assert list(epochs(8, 2, 6)) == [(0, 4), (1, 2)]
    assert list(epochs(9, 4, 5)) == [(0, 2), (1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("prompting", "adaptive", "words"),
    [
        ({}, {"reshuffle": True}, "needs prompting.cards"),
        ({}, {"smallest": 4, "largest": 3}, "largest = 3 is below smallest = 4"),
        ({}, {"rollouts_per_question": 5}, "adaptive over grpo: .*not a multiple"),
        ({}, {"steps": 0}, "greater than or equal to 1"),
        ({}, {"subset": 3}, "Extra inputs"),
    ],
)
def test_an_impossible_stage_is_refused_with_the_recipe(prompting: dict, adaptive: dict, words: str) -> None:
    quick = load_recipe(CONFIG, "quickstart").model_dump()
    with pytest.raises(ValueError, match=f"(?s){words}"):
        Recipe.model_validate(quick | {"adaptive": adaptive, "prompting": {**quick["prompting"], **prompting}})
    Recipe.model_validate(quick | {"adaptive": {"reshuffle": True}, "prompting": {**quick["prompting"], "cards": True}})


@pytest.fixture
def base(tmp_path: Path) -> tuple[Setup, Path]:
    """The quickstart's recipe, and the folder of its policy."""
    recipe, pool = load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "training_mix.jsonl").write_text("", encoding="utf-8")
    policy = tmp_path / "runs" / "quickstart-0123" / "policy"
    policy.mkdir(parents=True)
    PolicyCard(
        recipe="q", pool=pool, offered=pool.names, prompting=recipe.prompting, max_completion_tokens=8
    ).write(policy)  # fmt: skip
    return Setup(Workspace(tmp_path), recipe, pool), policy


def test_a_section_changes_only_its_own_stages_key(base: tuple[Setup, Path]) -> None:
    setup, policy = base
    stage = Adaptive(steps=7, learning_rate=1e-5)
    adaptive = Setup(setup.workspace, setup.recipe.model_copy(update={"adaptive": stage}), setup.pool)
    assert write_run(adaptive, policy) == write_run(setup, policy)
    folder = write_run(adaptive, policy, adaptive=stage)
    assert folder == write_run(adaptive, policy, adaptive=stage) != write_run(setup, policy)
    plan = RunPlan.read(folder)
    assert plan.adaptive == stage
    assert (plan.recipe.grpo.steps, plan.recipe.grpo.learning_rate) == (7, 1e-5)
    assert plan.recipe.grpo.rollouts_per_step == setup.recipe.grpo.rollouts_per_step
    other = stage.model_copy(update={"smallest": 2})
    assert write_run(adaptive, policy, adaptive=other) != folder
    trained_otherwise = policy.parent.with_name("quickstart-4567") / "policy"
    trained_otherwise.mkdir(parents=True)
    PolicyCard.read(policy).write(trained_otherwise)
    assert write_run(adaptive, trained_otherwise, adaptive=stage) != folder


def test_a_subset_larger_than_the_pool_is_refused_before_training(base: tuple[Setup, Path]) -> None:
    setup, policy = base
    with pytest.raises(ConfigError, match=r"adaptive: offers up to 10 workers, and pool 'quickstart' has 9"):
        write_run(setup, policy, adaptive=Adaptive(largest=10))
