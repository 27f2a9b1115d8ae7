"""From a completion to its reward: 0, 0.5, 1, or None if a worker is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ops.conductor.rollout import Rollout, roll_out
from ops.config import Prompting, Worker
from ops.core.errors import OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message, Response
from ops.training.cold_start.exploration import explore
from ops.training.cold_start.sampling import Precached, Subtask, WorkflowSampler
from ops.training.rewards.reward import merged, summarize
from ops.workflow.team import Team

OFFERED = [Worker(name=name, model=f"local/{name}") for name in ("good", "bad", "down", "refusing", "poor")]
PROMPTING = Prompting(style="compact", few_shots="none")
CHOICES = ("w", "x", "y", "z")


def problem(name: str = "p", answer: str = "B") -> Problem:
    return Problem(name, "mmlu", "mmlu", "train", f"Which {name}?", answer, "choice", choices=CHOICES, subject="s")


class Scripted:
    """Workers with one fixed behaviour each."""

    def __init__(self) -> None:
        self.finished = 0

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        if worker.name == "down":
            raise WorkerUnreachable("down: no answer")
        if worker.name == "refusing":
            raise WorkerRefused("refusing: will not")
        if worker.name == "poor":
            raise OverBudget("the cap would be passed")
        await asyncio.sleep(0.01)
        self.finished += 1
        return Response("Answer: B" if worker.name == "good" else "Answer: C", 10, 5, 0.001, 0.1, "stop")


def alone(ordinal: int) -> str:
    return f'model_id = [{ordinal}]\nsubtasks = ["Go."]\naccess_list = [[]]'


def run(*texts: str) -> list[Rollout]:
    return asyncio.run(roll_out(texts, [problem()] * len(texts), Team(OFFERED, Scripted(), PROMPTING)))


@pytest.mark.parametrize(
    ("text", "outcome", "reward"),
    [
        (alone(0), "right", 1.0),
        (alone(1), "wrong", 0.5),
        (alone(2), "unscorable", None),
        (alone(3), "wrong", 0.5),
        (alone(9), "invalid", 0.0),
        ("I would rather not.", "invalid", 0.0),
        ("", "invalid", 0.0),
        ("[" * 100_000, "invalid", 0.0),
    ],
)
def test_the_reward_of_one_completion(text: str, outcome: str, reward: float | None) -> None:
    rollout = run(text)[0]
    assert (rollout.outcome, rollout.reward) == (outcome, reward)


def test_an_unreachable_worker_outside_the_answers_ancestors_has_no_effect() -> None:
    text = 'model_id = [2, 0]\nsubtasks = ["Idle.", "Go."]\naccess_list = [[], []]'
    assert run(text)[0].reward == 1.0


def test_when_the_budget_ends_calls_in_flight_are_awaited_first() -> None:
    client = Scripted()
    with pytest.raises(OverBudget):
        asyncio.run(roll_out([alone(0), alone(4), alone(1)], [problem()] * 3, Team(OFFERED, client, PROMPTING)))
    assert client.finished == 2


def test_a_step_is_summed_up_by_outcome_failure_shape_and_use() -> None:
    texts = [alone(0), alone(1), alone(2), "nothing"]
    found = summarize(run(*texts), [problem()] * 4, 1.5)
    assert {
        name: found.values[f"share/{name}"] for name in ("right", "wrong", "invalid", "unscorable")
    } == dict.fromkeys(("right", "wrong", "invalid", "unscorable"), 0.25)
    assert found.values["invalid/no_assignment"] == 0.25
    assert found.values["shape/single"] == 0.75
    assert found.use == {"mmlu": {"good": 1, "bad": 1, "down": 1}}
    assert found.sample == alone(0)


def test_the_parts_of_a_step_that_ranks_saw_add_up_to_the_whole() -> None:
    texts = [alone(0), alone(1), alone(2), "nothing", alone(0), "[", alone(1), alone(0)]
    rollouts, problems = run(*texts), [problem("a"), problem("b", "B")] * 4
    whole = summarize(rollouts, problems, 1.5)
    parts = [summarize(rollouts[:3], problems[:3], 1.5), summarize(rollouts[3:], problems[3:], 0.5)]
    together = merged(parts)
    assert together.values == pytest.approx(whole.values)
    assert (together.use, together.patterns, together.sample) == (whole.use, whole.patterns, whole.sample)
    assert together.values["rollouts"] == 8
    assert merged([whole]).values == whole.values


def test_exploration_keeps_successful_workflows_and_reuses_them_in_the_domain() -> None:
    problems = [problem(f"p{i}") for i in range(30)]
    responses = [Precached(worker.name, p.id, "s", "", False) for worker in OFFERED[:2] for p in problems]
    sampler = WorkflowSampler(
        ["good", "bad"], responses, [Subtask("Go.", "go")], success_share=0.7, max_steps=2, seed=1
    )
    ticks: list[tuple[int, int]] = []
    team = Team(OFFERED[:2], Scripted(), PROMPTING)
    found = asyncio.run(explore(problems, sampler, 1, team, lambda done, total: ticks.append((done, total)))).taught
    assert len(found) > 20  # half by guessing, most of the rest by a workflow that succeeded elsewhere
    assert all(workflow.steps[-1].worker == 0 for workflows in found.values() for workflow in workflows)
    assert ticks[0] == (60, 60) or ticks[0][0] <= ticks[-1][0]
    sampler.learn(found)
    drawn = [sampler.draw(problems[int(next(iter(found)).removeprefix("mmlu/p"))]) for _ in range(200)]
    assert sum(workflow.steps[-1].worker == 0 for workflow in drawn) > 140


def test_a_lucky_guess_is_not_an_sft_example() -> None:
    problems = [problem(f"p{i}", "ABCD"[i % 4]) for i in range(40)]
    responses = [Precached("good", p.id, "s", "Answer: B", p.answer == "B") for p in problems]
    sampler = WorkflowSampler(["good"], responses, [Subtask("Go.", "go")], success_share=0.7, max_steps=2, seed=1)
    assert not any(sampler.solved_alone(p) for p in problems)
    found = asyncio.run(explore(problems, sampler, 2, Team(OFFERED[:1], Scripted(), PROMPTING))).taught
    assert found == {}


def test_successful_workflows_are_reused_within_their_subject_first() -> None:
    """The first worker solves subject "s", the second subject "t": neither is tried on the other's."""
    problems = [replace(problem(f"p{i}", "B" if i % 2 else "C"), subject="s" if i % 2 else "t") for i in range(60)]
    sampler = WorkflowSampler(["good", "bad"], [], [Subtask("Go.", "go")], success_share=0.7, max_steps=1, seed=1)
    solved = asyncio.run(explore(problems, sampler, 4, Team(OFFERED[:2], Scripted(), PROMPTING))).taught
    assert len(solved) == len(problems)
    for problem_, workflows in ((each, solved[each.key]) for each in problems):
        assert {workflow.steps[-1].worker for workflow in workflows} == {0 if problem_.subject == "s" else 1}
