"""From completions to rewards: 0, 0.5, 1, or None if a worker is unreachable; reward terms; a training step in numbers;
recursive rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.rollout import Rollout, execute_rollouts
from ops.config import Prompting, Worker
from ops.core.errors import OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.planning.plan_text import describe_recipe
from ops.training.rewards.outage import OutagePolicy, execute_rollouts_with_retries
from ops.training.rewards.reward import (
    WorkerSamples,
    build_reward_function,
    count_rounds,
    merge_ranks,
    round_shares,
    summarize_rollouts,
)
from ops.training.run.training_run import read_curve
from ops.training.stages.rounds import assign_previous_rounds, blend_rewards, mark_recursive_rollouts
from ops.workflow.grammar import Step, Workflow
from ops.workflow.strategy import SHAPES
from ops.workflow.team import Team
from tests.builders import Answering
from tests.unit.training.tiny import tiny_plan, train

WORKERS = ("right", "wrong", "down", "refusing", "poor")
RIGHT, WRONG, DOWN, REFUSING, POOR, ABSENT = (Workflow.single(ordinal).render() for ordinal in range(6))
CHECKED = Workflow((Step(1, "Guess."), Step(0, "Check it.", "all"))).render()
IDLE = Workflow((Step(2, "Idle."), Step(0, "Go."))).render()
KEEP = Workflow(()).render()
FAILURES = {"down": WorkerUnreachable("down"), "refusing": WorkerRefused("will not"), "poor": OverBudget("the cap")}


def says(worker: Worker, _: Sequence[Message]) -> str:
    """Let each worker do what its name says."""
    if worker.name in FAILURES:
        raise FAILURES[worker.name]
    return "\\boxed{7}" if worker.name == "right" else "\\boxed{8}"


def problem(name: str = "a", domain: str = "math") -> Problem:
    return Problem(name, "math500", domain, "train", "Question?", "7", "math")  # type: ignore[arg-type]


PROBLEMS = {each.key: each for each in (problem(), problem("b", "code"))}


def team_of(client: Answering | None = None) -> Team:
    workers = [Worker(name=name, model=f"local/{name}") for name in WORKERS]
    return Team(workers, client or Answering(says), Prompting(style="compact", few_shots="none"))


def run(*texts: str, **more: object) -> list[Rollout]:
    return asyncio.run(execute_rollouts(texts, [problem()] * len(texts), team_of(), **more))  # type: ignore[arg-type]


def step(completions: Sequence[str], names: str = "", weights: Mapping[str, float] | None = None) -> tuple[Any, Any]:
    """Return the rewards and the `StepStatistics` of a step; `names`: a letter for the problem of each completion."""
    seen: list[Any] = []
    function = build_reward_function(PROBLEMS, team_of(), seen.append, weights)
    asked = [f"math500/{name}" for name in names or "a" * len(completions)]
    rewards = asyncio.run(function(completions=completions, problem=asked, epoch=[0]))  # type: ignore[arg-type]
    return rewards, seen[0]


@pytest.mark.parametrize(
    ("text", "outcome", "reward"),
    [
        (RIGHT, "right", 1.0),
        (WRONG, "wrong", 0.5),
        (DOWN, "unscorable", None),
        (REFUSING, "wrong", 0.5),
        (ABSENT, "invalid", 0.0),
        ("I would rather not.", "invalid", 0.0),
        ("", "invalid", 0.0),
        pytest.param("[" * 100_000, "invalid", 0.0, id="deep"),
        pytest.param(KEEP, "invalid", 0.0, id="three empty lists are no first round"),
        pytest.param(IDLE, "right", 1.0, id="an unreachable worker outside the answer's ancestors"),
    ],
)
def test_the_reward_of_one_completion(text: str, outcome: str, reward: float | None) -> None:
    [rollout] = run(text)
    assert (rollout.outcome, rollout.reward, rollout.has_kept_answer) == (outcome, reward, False)


def test_when_the_budget_ends_calls_in_flight_are_awaited_first() -> None:
    finished = []

    class Slow(Answering):
        async def complete(self, worker: Worker, *arguments: object, **more: object) -> Response:
            response = await super().complete(worker, *arguments, **more)  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
            finished.append(worker.name)
            return response

    with pytest.raises(OverBudget):
        asyncio.run(execute_rollouts([RIGHT, POOR, WRONG], [problem()] * 3, team_of(Slow(says))))
    assert sorted(finished) == ["right", "wrong"]


def test_a_step_counts_outcomes_failures_strategies_and_worker_use() -> None:
    completions = [RIGHT, CHECKED, CHECKED, WRONG, "no", '{"model_id": [0]}', RIGHT, RIGHT, DOWN, "no"]
    rewards, statistics = step(completions, "aabbaaaaaa")
    assert rewards == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 1.0, 1.0, None, 0.0]
    found = {name: round(10 * statistics.metrics[name], 9) for name in statistics.metrics if "/" in name}
    assert {name: count for name, count in found.items() if name.startswith(("share/", "invalid/"))} == {
        "share/right": 5, "share/wrong": 1, "share/invalid": 3, "share/unscorable": 1,
        "invalid/no_assignment": 2, "invalid/mapping": 1,
    }  # fmt: skip
    assert (found["shape/single"], found["shape/verify_last"]) == (5, 2)
    assert {f"shape/{name}" for name in SHAPES} <= set(found)
    assert statistics.metrics["patterns"] == 4
    assert statistics.metrics["diversity"] == pytest.approx(1.8423710)  # shares 3/7, 2/7, 1/7 and 1/7
    assert statistics.top_patterns == {"0": 3, "1 0<0": 2, "1": 1, "2": 1}
    assert statistics.worker_use == {"code": {"right": 1, "wrong": 2}, "math": {"right": 4, "wrong": 1, "down": 1}}
    assert statistics.sample == RIGHT


def test_a_step_without_a_workflow_has_no_diversity() -> None:
    rewards, statistics = step(["no", "never"], "ab")
    assert rewards == [0.0, 0.0]
    assert (statistics.metrics["patterns"], statistics.metrics["diversity"]) == (0, 0.0)
    assert statistics.worker_use == statistics.top_patterns == {}


def test_the_parts_of_a_step_that_ranks_saw_add_up_to_the_whole() -> None:
    rollouts = run(RIGHT, WRONG, DOWN, "nothing", RIGHT, "[", WRONG, RIGHT)
    problems = [*PROBLEMS.values()] * 4
    whole = summarize_rollouts(rollouts, problems, 1.5)
    together = merge_ranks(
        [summarize_rollouts(rollouts[:3], problems[:3], 1.5), summarize_rollouts(rollouts[3:], problems[3:], 0.5)]
    )
    assert together.metrics == pytest.approx(whole.metrics)
    assert (together.worker_use, together.top_patterns, together.sample) == (
        whole.worker_use,
        whole.top_patterns,
        whole.sample,
    )
    assert together.metrics["rollouts"] == 8
    assert merge_ranks([whole]).metrics == whole.metrics


EVERY = WorkerSamples("every", group=4)


@pytest.mark.parametrize(
    ("worker_samples", "epoch", "expected"),
    [
        (WorkerSamples(1), 3, [0, 0]),
        (WorkerSamples(2), 0, [0, 0]),
        (WorkerSamples(2), 1, [1, 1]),
        (WorkerSamples(2), 2, [0, 0]),
        (EVERY, 0, [0, 1]),
        (EVERY, 3, [12, 13]),
        pytest.param(EVERY._replace(rank=1), 3, [14, 15], id="on the second rank"),
    ],
)
def test_epochs_or_rollouts_draw_the_workers_anew(
    worker_samples: WorkerSamples, epoch: int, expected: list[int]
) -> None:
    client = Answering(says)
    function = build_reward_function(PROBLEMS, team_of(client), lambda _: None, None, worker_samples)
    asyncio.run(function(completions=[RIGHT] * 2, problem=["math500/a"] * 2, epoch=[epoch] * 2))  # type: ignore[arg-type]
    assert [sample.index for *_, sample in client.asked] == expected


def test_a_cut_off_completion_is_never_a_workflow() -> None:
    end, other = 7, 8
    seen: list[Any] = []
    function = build_reward_function(PROBLEMS, team_of(), seen.append, ends=[end])
    ids = [[other, end], [other, end, other], []]
    asked = {"problem": ["math500/a"] * 3, "epoch": [0], "completion_ids": ids}
    assert asyncio.run(function(completions=[RIGHT] * 3, **asked)) == [1.0, 0.0, 0.0]  # type: ignore[arg-type]
    assert seen[0].metrics["invalid/cut_off"] == 2 / 3
    assert seen[0].calls == 1


@pytest.mark.parametrize(
    ("weights", "added"),
    [
        (None, (0.0, 0.0, 0.0)),
        ({}, (0.0, 0.0, 0.0)),
        ({"cost": -40.0}, (-0.04, -0.08, -0.04)),
        ({"latency": -0.1}, (-0.05, -0.1, -0.05)),
        ({"steps": 0.01}, (0.01, 0.02, 0.01)),
        pytest.param({"cost": -40.0, "steps": 0.01}, (-0.03, -0.06, -0.03), id="two terms"),
    ],
)
def test_weights_add_terms_to_executed_workflows_alone(
    weights: Mapping[str, float] | None, added: tuple[float, ...]
) -> None:
    rewards, found = step([RIGHT, CHECKED, WRONG, "no", DOWN], weights=weights)
    assert rewards[:3] == pytest.approx([plain + more for plain, more in zip((1.0, 1.0, 0.5), added, strict=True)])
    assert rewards[3:] == [0.0, None]
    assert found.metrics["share/right"] == 2 / 5
    terms = {name: value for name, value in found.metrics.items() if name.startswith("term/")}
    assert set(terms) == {f"term/{name}" for name in weights or ()}
    assert sum(terms.values()) == pytest.approx(sum(added) / 4)  # four rollouts are scorable
    both = merge_ranks([found, found]).metrics  # two ranks have one mean
    assert {name: both[name] for name in terms} == pytest.approx(terms)


@pytest.mark.slow
def test_the_curve_logs_each_term_and_the_plan_names_it(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, steps=1, reward_terms={"steps": -0.01})
    assert "0, 0.5 or 1, and -0.01 × steps (steps)" in describe_recipe(plan.setup)
    train(plan, folder)
    [row] = read_curve(folder)
    assert row["term/steps"] < 0
    assert row["reward"] == pytest.approx(row["share/right"] + 0.5 * row["share/wrong"] + row["term/steps"])


def rounds(first: str, *texts: str) -> tuple[list[Rollout], list[list[Message]]]:
    """Return a first round, the rounds that follow from each of the texts, and the messages to workers."""
    team = team_of(client := Answering(says))
    [begun] = asyncio.run(execute_rollouts([first], [problem()], team))
    later = asyncio.run(execute_rollouts(texts, [problem()] * len(texts), team, previous=[begun] * len(texts)))
    return [begun, *later], [messages for _, messages, _ in client.asked]


@pytest.mark.parametrize(("first", "reward"), [(RIGHT, 1.0), (WRONG, 0.5)])
def test_a_kept_answer_has_its_earlier_reward_and_makes_no_call(first: str, reward: float) -> None:
    made, chats = rounds(first, KEEP, first)
    assert [rollout.reward for rollout in made] == [reward] * 3
    assert [rollout.has_kept_answer for rollout in made] == [False, True, True]
    assert len(chats) == 1 and made[1].trace is None
    assert made[1].previous is made[0]


def test_another_workflow_is_executed_and_sees_the_answer_where_it_sees_all() -> None:
    made, chats = rounds(RIGHT, Workflow((Step(1, "Check it.", "all"),)).render(), WRONG, "I am content.")
    assert [rollout.outcome for rollout in made] == ["right", "wrong", "wrong", "invalid"]
    check, alone = chats[1:]
    assert check[1] == {"role": "assistant", "content": "\\boxed{7}"} and len(alone) == 1


def test_workers_that_recover_answer_the_pending_round() -> None:
    failures = iter(range(4))

    def late(worker: Worker, messages: Sequence[Message]) -> str:
        if worker.name == "wrong" and next(failures, None) is not None:
            raise WorkerUnreachable("away")
        return says(worker, messages)

    async def sleep(_: float) -> None: ...

    team = team_of(Answering(late))
    [begun] = run(RIGHT)
    texts = [Workflow((Step(1, f"Check {number}.", "all"),)).render() for number in range(3)]
    patience = OutagePolicy(max_unscorable=0.0, total_s=60.0, sleep=sleep)
    waiting = execute_rollouts_with_retries([*texts, KEEP], [problem()] * 4, team, patience, previous=[begun] * 4)
    made = asyncio.run(waiting)
    assert [rollout.outcome for rollout in made] == ["wrong"] * 3 + ["right"]
    assert all(rollout.previous is begun for rollout in made)


def test_shares_are_of_each_round() -> None:
    right, _ = rounds(RIGHT, KEEP, RIGHT, WRONG, "nothing")
    wrong, _ = rounds(WRONG, KEEP, RIGHT)
    assert round_shares(count_rounds([*right, *wrong])) == {
        "round_1/right": 1 / 2,
        "round_2/rollouts": 6,
        "round_2/right": 3 / 6,
        "round_2/kept": 2 / 6,
        "round_2/loops": 1 / 6,
        "round_2/to_right": 1 / 6,
        "round_2/to_wrong": 1 / 6,
    }
    assert round_shares({}) == {}


def test_the_second_half_of_a_questions_rollouts_are_recursive() -> None:
    assert mark_recursive_rollouts(["a"] * 4 + ["b"] * 2) == [False, False, True, True, False, True]


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ("aaa---", [None, None, None, 0, 1, 2]),
        ("-a----", [None, None, None, 1, 1, 1]),
        ("a-a---", [None, None, None, 0, 2, 0]),
        ("------", [None] * 6),  # no round to continue: all are first rounds
        ("---aaa", [None] * 6),
    ],
)
def test_recursive_rollouts_continue_the_first_rounds(ready: str, expected: list[int | None]) -> None:
    able = [mark == "a" for mark in ready]
    assert assign_previous_rounds(["q"] * 6, able) == expected
    both = assign_previous_rounds(["p", "p"] + ["q"] * 6, [True, False, *able])
    assert both == [None, 0, *(None if place is None else place + 2 for place in expected)]


@pytest.mark.parametrize(
    ("own", "later", "gamma", "reward"),
    [
        (0.5, [1.0], 0.25, 0.625),
        (1.0, [0.5], 0.25, 0.875),
        (1.0, [1.0], 0.25, 1.0),
        (0.5, [1.0, 0.0], 0.25, 0.5),
        (0.5, [1.0, None], 0.25, 0.625),
        (0.5, [1.0], 0.0, 0.5),
        (0.5, [1.0], 1.0, 1.0),
        (0.0, [], 0.25, 0.0),  # not a workflow, so no round follows
        (1.0, [None], 0.25, 1.0),
        (None, [], 0.25, None),
    ],
)
def test_a_first_round_earns_a_blend(own: float | None, later: list[float | None], gamma: float, reward: float) -> None:
    assert blend_rewards(own, later, gamma) == reward
