"""A subset of the workers on offer: the prompt's list, the parsed ordinals, and the workers that can be called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops.config import Prompting, Worker
from ops.workflow.cards import WorkerCard
from ops.workflow.execution import execute_workflow
from ops.workflow.few_shots import load_few_shots
from ops.workflow.grammar import Step, Workflow
from ops.workflow.literals import FormatFailure
from ops.workflow.team import Team
from tests.builders import Answering, make_problem

ROOT = Path(__file__).parents[3]
PROBLEM = make_problem(question="Why?")
NAMES = ("ada", "bob", "cid", "dora", "eve")
CARDS = tuple(WorkerCard(accuracy={"math": share / 10}, cost_usd=0.001) for share in range(5))


def team(**prompting: object) -> Team:
    workers = [Worker(name=name, model=f"local/{name}") for name in NAMES]
    shown = Prompting.model_validate(prompting)
    shots = load_few_shots(ROOT / "data", shown.few_shots)
    return Team(workers, Answering("Because."), shown, shots, CARDS if shown.cards else ())


def last(offered: Team) -> str:
    return offered.build_messages(PROBLEM)[-1]["content"]


def test_omitted_workers_are_missing_in_the_list_and_the_others_keep_their_ordinals() -> None:
    compact = team(style="compact").restrict_to([4, 1])
    assert last(compact) == "Why?\nModels: 1 4"
    assert compact.names == NAMES  # "1" is always the same worker
    full = last(team(style="full").restrict_to([1, 3, 4]))
    assert full.count("Models on offer: Model 1, Model 3, Model 4\n") == 5  # four examples, and the question
    assert "Model 0" not in full and "Model 2" not in full
    assert "model_id = [3, 1]" in full  # the form of the lists


def test_renumbered_workers_count_from_nought_in_their_order() -> None:
    offered = team(style="compact").restrict_to([4, 1], renumbered=True)
    assert last(offered) == "Why?\nModels: 0 1"
    assert offered.names == ("eve", "bob")


@pytest.mark.parametrize(
    ("renumbered", "first", "second"), [(False, "1: math 10", "4: math 40"), (True, "0: math 40", "1: math 10")]
)
def test_cards_go_with_their_workers(renumbered: bool, first: str, second: str) -> None:
    lines = last(team(style="compact", cards=True).restrict_to([4, 1], renumbered=renumbered)).splitlines()
    assert lines[2].startswith(first) and lines[3].startswith(second) and len(lines) == 4


@pytest.mark.parametrize("ordinals", [[1], [2, 4], [0, 3, 4]])
@pytest.mark.parametrize("style", ["full", "compact"])
def test_every_workflow_that_is_shown_can_be_run(style: str, ordinals: list[int]) -> None:
    offered = team(style=style).restrict_to(ordinals)
    for message in offered.build_messages(PROBLEM):
        for block in message["content"].split("model_id = ")[1:]:
            assert offered.parse(f"model_id = {block}").workflow is not None


@pytest.mark.parametrize("absent", [0, 2, 4, 5])
def test_a_worker_that_is_not_on_offer_has_no_ordinal(absent: int) -> None:
    offered = team().restrict_to([1, 3])
    assert offered.parse(Workflow.single(3).render()).workflow == Workflow.single(3)
    parsed = offered.parse(Workflow.single(absent).render())
    assert parsed.failure == FormatFailure.UNKNOWN_WORKER
    assert parsed.detail == f"step 0: {absent} is not among 1, 3"


def test_workers_that_are_not_on_offer_are_not_called() -> None:
    offered = team().restrict_to([1, 3])
    client = offered.client
    assert isinstance(client, Answering)
    asyncio.run(execute_workflow(Workflow((Step(3, "Try."), Step(1, "Check.", "all"))), "Why?", offered))
    assert [name for name, *_ in client.asked] == ["dora", "bob"]
    with pytest.raises(ValueError, match="worker 0 is not among the 2 offered"):
        asyncio.run(execute_workflow(Workflow.single(0), "Why?", offered))
    assert len(client.asked) == 2


@pytest.mark.parametrize("style", ["full", "compact"])
def test_text_after_the_answer_ends_the_turn_for_any_offer(style: str) -> None:
    offered = team(style=style, few_shots="none").restrict_to([2, 4])
    listed = next(line for line in last(offered).splitlines() if line.startswith("Models"))
    invented = f"{Workflow.single(2).render()}\n{listed}\n{Workflow.single(4).render()}"
    assert offered.parse(invented).workflow == Workflow.single(2)


@pytest.mark.parametrize("ordinals", [[], [1, 1], [5], [0, -1]])
def test_an_impossible_offer_is_refused(ordinals: list[int]) -> None:
    with pytest.raises(ValueError, match="no part of the workers on offer"):
        team().restrict_to(ordinals)
    with pytest.raises(ValueError, match="no part of the workers on offer"):
        team().restrict_to([1, 3]).restrict_to([1, 2])
