"""The reward of a recursive round, the workers that it calls, and its counts in a curve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from ops.conductor.rollout import Rollout, roll_out
from ops.config import Prompting, Worker
from ops.core.errors import WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message
from ops.training.rewards.outage import Patience, roll_out_patiently
from ops.training.rewards.reward import counted, shares
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import Answering

PROBLEM = Problem("p", "math500", "math", "train", "What is 6 · 7?", "42", "math")
KEEP = Workflow(()).render()
RIGHT, WRONG = (Workflow.single(ordinal, "Solve.") for ordinal in range(2))
CHECK = Workflow((Step(1, "Check it.", "all"),))


def right_or_wrong(worker: Worker, _: Sequence[Message]) -> str:
    """Let `right` answer correctly and `wrong` incorrectly."""
    return "\\boxed{42}" if worker.name == "right" else "\\boxed{41}"


def team_of(says: Callable[[Worker, Sequence[Message]], str] = right_or_wrong) -> Team:
    workers = [Worker(name=name, model=f"local/{name}") for name in ("right", "wrong")]
    return Team(workers, Answering(says), Prompting(style="compact", few_shots="none"))


def rounds(first: Workflow, *texts: str) -> tuple[list[Rollout], list[list[Message]]]:
    """Return a first round, the rounds that follow from each of the texts, and the messages to workers."""
    client = Answering(right_or_wrong)
    team = replace(team_of(), client=client)
    [begun] = asyncio.run(roll_out([first.render()], [PROBLEM], team))
    later = asyncio.run(roll_out(texts, [PROBLEM] * len(texts), team, after=[begun] * len(texts)))
    return [begun, *later], [messages for _, messages, _ in client.asked]


def test_a_kept_answer_has_its_earlier_reward_and_makes_no_call() -> None:
    for first, reward in ((RIGHT, 1.0), (WRONG, 0.5)):
        made, chats = rounds(first, KEEP, first.render())
        assert [rollout.reward for rollout in made] == [reward] * 3
        assert [rollout.keeps for rollout in made] == [False, True, True]
        assert len(chats) == 1 and made[1].trace is None


def test_another_workflow_is_executed_and_sees_the_answer_where_it_sees_all() -> None:
    made, chats = rounds(RIGHT, CHECK.render(), WRONG.render(), "I am content.")
    assert [rollout.outcome for rollout in made] == ["right", "wrong", "wrong", "invalid"]
    check, alone = chats[1:]
    assert check[1] == {"role": "assistant", "content": "\\boxed{42}"} and len(alone) == 1


def test_three_empty_lists_are_no_first_round() -> None:
    made, _ = rounds(RIGHT, KEEP)
    assert made[1].after is made[0]
    [empty] = asyncio.run(roll_out([KEEP], [PROBLEM], team_of()))
    assert (empty.outcome, empty.keeps) == ("invalid", False)


def test_workers_that_recover_answer_the_pending_round() -> None:
    failures = iter(range(4))

    def late(worker: Worker, messages: Sequence[Message]) -> str:
        if worker.name == "wrong" and next(failures, None) is not None:
            raise WorkerUnreachable("away")
        return right_or_wrong(worker, messages)

    async def sleep(_: float) -> None: ...

    team = team_of(late)
    [begun] = asyncio.run(roll_out([RIGHT.render()], [PROBLEM], team))
    texts = [Workflow((Step(1, f"Check {number}.", "all"),)).render() for number in range(3)]
    patience = Patience(max_unscorable=0.0, total_s=60.0, sleep=sleep)
    waiting = roll_out_patiently([*texts, KEEP], [PROBLEM] * 4, team, patience, after=[begun] * 4)
    made = asyncio.run(waiting)
    assert [rollout.outcome for rollout in made] == ["wrong"] * 3 + ["right"]
    assert all(rollout.after is begun for rollout in made)


def test_shares_are_of_each_round() -> None:
    right, _ = rounds(RIGHT, KEEP, RIGHT.render(), WRONG.render(), "nothing")
    wrong, _ = rounds(WRONG, KEEP, RIGHT.render())
    shown = shares(counted([*right, *wrong]))
    assert shown == {
        "round_1/right": 1 / 2,
        "round_2/rollouts": 6,
        "round_2/right": 3 / 6,
        "round_2/kept": 2 / 6,
        "round_2/loops": 1 / 6,
        "round_2/to_right": 1 / 6,
        "round_2/to_wrong": 1 / 6,
    }
    assert shares({}) == {}
