"""A Conductor on subsets of its pool: the subsets, the called workers, the comparisons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ops.config import Evaluation, Prompting, Worker
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.status import Status
from ops.core.usage import Usage
from ops.evaluation.method import Method
from ops.evaluation.runner import evaluate, evaluate_method
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import PairedQuestions, average_by_question, mean_accuracy
from ops.results.table import concatenate_rows
from ops.stages.studies.subsets import add_worker, draw_subsets, list_named_subsets
from ops.workflow.cards import WorkerCard
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

NAMES = ("ada", "bob", "cid", "dora")
PROBLEMS = [Problem(str(i), "math500", "math", "test", f"What is {i} + 0?", str(i), "math") for i in range(6)]


class Recorder:
    """`ada` and `zoe` answer correctly."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        self.asked.append(worker.name)
        number = messages[0]["content"].split()[2]
        answer = number if worker.name in ("ada", "zoe") else "99"
        return Response(f"\\boxed{{{answer}}}", Usage(10, 5), 0.001, 0.5, "stop")


class FirstAndLast:
    """Uses the pool's first worker for any offer, and the last offered worker on every other question."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        texts = [prompt[-1]["content"].splitlines() for prompt in prompts]
        self.prompts += [text[1] for text in texts]
        return [Workflow.single(0 if i % 2 else int(text[1].split()[-1])).render() for i, text in enumerate(texts)]


def team(cards: bool = False) -> Team:
    shown = tuple(WorkerCard(accuracy={"math": 0.1 * i}, cost_usd=0.001) for i in range(4))
    prompting = Prompting(style="compact", few_shots="none", cards=cards)
    return Team([Worker(name=n, model=f"local/{n}") for n in NAMES], Recorder(), prompting, (), shown if cards else ())


def test_parts_of_every_size_are_drawn_by_seed() -> None:
    drawn = draw_subsets(9, 3, seed=1)
    assert list(drawn) == list(range(1, 9))
    for size, some in drawn.items():
        assert len(set(some)) == 3
        assert all(len(part) == size and list(part) == sorted(set(part)) and max(part) < 9 for part in some)
    assert drawn == draw_subsets(9, 3, seed=1) != draw_subsets(9, 3, seed=2)
    assert draw_subsets(3, 9, seed=1) == {1: [(0,), (1,), (2,)], 2: [(0, 1), (0, 2), (1, 2)]}
    assert draw_subsets(1, 9, seed=1) == {}


def test_parts_have_the_names_that_people_give_them_and_each_stands_once() -> None:
    tags = (("closed",), ("open",), ("open", "reasoning"), ("closed",))
    workers = [Worker(name=n, model=f"local/{n}", tags=t) for n, t in zip(NAMES, tags, strict=True)]
    usd = {"ada": 3.0, "bob": 1.0, "cid": 2.0, "dora": 9.0}
    assert list_named_subsets(workers, usd) == {
        "closed only": (0, 3),
        "open only": (1, 2),
        "reasoning only": (2,),
        "none reasoning": (0, 1, 3),
    }  # the cheap half is the open one; "none closed" and "none open" have other names
    assert list_named_subsets(workers, usd | {"ada": 0.1})["the cheap half"] == (0, 1)
    alike = [Worker(name=n, model=f"local/{n}", tags=("tool",)) for n in NAMES[:3]]
    assert list_named_subsets(alike, usd) == {"the cheap half": (1, 2)}
    assert list_named_subsets(alike[:1], usd) == {}


def test_only_workers_on_offer_are_called() -> None:
    for part in [(1,), (0, 2), (1, 2, 3), (0, 3)]:
        offered, writer = team(), FirstAndLast()
        scores = asyncio.run(evaluate(writer, PROBLEMS, offered.restrict_to(part), Evaluation()))
        names = {NAMES[ordinal] for ordinal in part}
        assert isinstance(offered.client, Recorder)
        assert set(offered.client.asked) == {NAMES[0], NAMES[part[-1]]} & names
        assert set(writer.prompts) == {f"Models: {' '.join(map(str, part))}"}
        for i, row in enumerate(scores):
            absent = i % 2 == 1 and 0 not in part
            assert (row.failure, row.status) == (("unknown_worker", Status.NO_WORKFLOW) if absent else ("", "answered"))
            assert set(row.workers) <= names


def test_renumbered_parts_reach_the_right_workers() -> None:
    offered = team(cards=True)
    rows = asyncio.run(evaluate(FirstAndLast(), PROBLEMS, offered.restrict_to((2, 0), renumbered=True), Evaluation()))
    assert [row.workers for row in rows] == [("ada",), ("cid",)] * 3  # the last on the list is ada, the first cid


def test_a_new_worker_gets_the_next_ordinal_and_a_card_if_the_others_have_one() -> None:
    zoe = Worker(name="zoe", model="local/zoe")
    card = WorkerCard(accuracy={"math": 0.9}, cost_usd=0.002)
    known = add_worker(team(), zoe)
    scores = asyncio.run(evaluate(FirstAndLast(), PROBLEMS, known.restrict_to((1, 4)), Evaluation()))
    assert {row.workers for row in scores if row.format_ok} == {("zoe",)}
    described = add_worker(team(cards=True), zoe, [card]).build_messages(PROBLEMS[0])[0]["content"]
    assert described.splitlines()[1] == "Models: 0 1 2 3 4" and described.endswith("4: math 90 $0.0020")
    for wrong, cards in ((team(), [card]), (team(cards=True), [])):
        with pytest.raises(ValueError, match="cards for 'zoe'"):
            add_worker(wrong, zoe, cards)
    with pytest.raises(ValueError, match="is in the team"):
        add_worker(known, zoe)


def test_workers_alone_are_what_a_part_is_held_against() -> None:
    methods = [Method.static(Workflow.single(ordinal)) for ordinal in range(len(NAMES))]
    alone = [asyncio.run(evaluate_method(method, PROBLEMS, team(), Evaluation())) for method in methods]
    assert [mean_accuracy(average_by_question(rows), ["math500"]).mean for rows in alone] == [1.0, 0.0, 0.0, 0.0]


def row(benchmark: str, problem: str, correct: int, *, unscorable: bool = False) -> OutcomeRow:
    return OutcomeRow(
        benchmark, problem, 0, "math", correct, True, "", "answered", 1, (), 0, 0.0, 0.0, "", "", unscorable
    )  # fmt: skip


def test_parts_are_repeats_of_a_question_and_differences_are_paired() -> None:
    names = ["a", "b"]
    ours = [
        [row("a", "1", 1), row("a", "2", 1), row("b", "1", 0), row("b", "2", 1)],
        [row("a", "1", 0), row("a", "2", 1), row("b", "1", 0), row("b", "2", 1, unscorable=True)],
    ]
    theirs = [[row("a", "1", 0), row("a", "2", 1), row("b", "1", 1), row("b", "3", 1)]]
    mine = average_by_question(concatenate_rows(ours))
    assert mean_accuracy(mine, names).mean == pytest.approx((0.75 + 0.5) / 2)
    assert mean_accuracy(mine, names).n == 4
    gained = PairedQuestions(mine, average_by_question(concatenate_rows(theirs))).difference(names)
    assert gained.mean == pytest.approx((0.25 - 1.0) / 2)  # a: +0.5 and 0; b: -1, its other questions have no pair
    assert gained.n == 3
