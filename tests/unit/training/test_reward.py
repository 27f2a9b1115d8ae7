"""A training step in numbers: outcomes, ways to fail, strategies, worker use; rewards as TRL takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ops.config import Prompting, Worker
from ops.core.problem import Problem
from ops.core.response import Message
from ops.training.rewards.reward import StepStatistics, WorkerSamples, reward_function
from ops.workflow.grammar import Step, Workflow
from ops.workflow.strategy import SHAPES
from ops.workflow.team import Team
from tests.builders import Answering

OFFERED = [Worker(name="knows", model="local/knows"), Worker(name="lies", model="local/lies")]
ALONE, WRONG = Workflow.single(0).render(), Workflow.single(1).render()
CHECKED = Workflow((Step(1, "Guess."), Step(0, "Check it.", "all"))).render()


def says(worker: Worker, _: Sequence[Message]) -> str:
    return "\\boxed{7}" if worker.name == "knows" else "\\boxed{8}"


def problem(name: str, domain: str) -> Problem:
    return Problem(name, "math500", domain, "train", "Question?", "7", "math")  # type: ignore[arg-type]


def step(completions: list[str], names: list[str]) -> tuple[list[float | None], StepStatistics]:
    seen: list[StepStatistics] = []
    problems = {"math500/a": problem("a", "math"), "math500/b": problem("b", "code")}
    function = reward_function(problems, Team(OFFERED, Answering(says), Prompting(style="compact")), seen.append)  # type: ignore[arg-type]
    rewards = asyncio.run(function(completions=completions, problem=[f"math500/{name}" for name in names], epoch=[0]))  # type: ignore[arg-type]
    return rewards, seen[0]


def test_a_step_counts_outcomes_and_strategies() -> None:
    completions = [ALONE, CHECKED, CHECKED, WRONG, "no", '{"model_id": [0]}', ALONE, ALONE]
    rewards, statistics = step(completions, ["a", "a", "b", "b", "a", "a", "a", "a"])
    assert rewards == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 1.0, 1.0]
    assert statistics.values["share/right"] == 5 / 8
    assert statistics.values["invalid/no_assignment"] == statistics.values["invalid/mapping"] == 1 / 8
    assert statistics.values["shape/single"] == 4 / 8
    assert statistics.values["shape/verify_last"] == 2 / 8
    assert {f"shape/{name}" for name in SHAPES} <= set(statistics.values)
    assert statistics.values["patterns"] == 3
    assert statistics.values["diversity"] == pytest.approx(1.4591479)  # shares 3/6, 2/6 and 1/6
    assert statistics.patterns == {"0": 3, "1 0<0": 2, "1": 1}
    assert statistics.use == {"code": {"knows": 1, "lies": 2}, "math": {"knows": 4, "lies": 1}}
    assert statistics.sample == ALONE


def test_a_step_without_a_workflow_has_no_diversity() -> None:
    rewards, statistics = step(["no", "never"], ["a", "b"])
    assert rewards == [0.0, 0.0]
    assert (statistics.values["patterns"], statistics.values["diversity"]) == (0, 0.0)
    assert statistics.use == statistics.patterns == {}


EVERY = WorkerSamples("every", group=4)
ON_THE_SECOND_RANK = EVERY._replace(rank=1)


@pytest.mark.parametrize(
    ("worker_samples", "epoch", "expected"),
    [
        (WorkerSamples(1), 3, [0, 0]),
        (WorkerSamples(2), 0, [0, 0]),
        (WorkerSamples(2), 1, [1, 1]),
        (WorkerSamples(2), 2, [0, 0]),
        (EVERY, 0, [0, 1]),
        (EVERY, 3, [12, 13]),
        (ON_THE_SECOND_RANK, 3, [14, 15]),
    ],
)
def test_epochs_or_rollouts_draw_the_workers_anew(
    worker_samples: WorkerSamples, epoch: int, expected: list[int]
) -> None:
    client = Answering(says)
    team = Team(OFFERED, client, Prompting(style="compact"))
    function = reward_function({"math500/a": problem("a", "math")}, team, lambda _: None, None, worker_samples)
    asyncio.run(function(completions=[ALONE] * 2, problem=["math500/a"] * 2, epoch=[epoch] * 2))  # type: ignore[arg-type]
    assert [sample.index for *_, sample in client.asked] == expected


def test_a_cut_off_completion_is_never_a_workflow() -> None:
    end, other = 7, 8
    seen: list[StepStatistics] = []
    team = Team(OFFERED, Answering(says), Prompting(style="compact"))  # type: ignore[arg-type]
    function = reward_function({"math500/a": problem("a", "math")}, team, seen.append, ends=[end])
    ids = [[other, end], [other, end, other], []]
    named = ["math500/a"] * len(ids)
    rewards = asyncio.run(function(completions=[ALONE] * len(ids), problem=named, epoch=[0], completion_ids=ids))  # type: ignore[arg-type]
    assert rewards == [1.0, 0.0, 0.0]
    assert seen[0].values["invalid/cut_off"] == 2 / 3
    assert seen[0].calls == 1
