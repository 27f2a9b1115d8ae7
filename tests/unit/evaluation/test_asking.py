"""Baselines that call workers: their workflows are executed, selected, graded and stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ops.config import Evaluation, Worker
from ops.core.errors import OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.usage import Usage
from ops.evaluation.method import Attempt, Method
from ops.evaluation.runner import evaluate_method
from ops.results.outcome_rows import OutcomeRow
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team

WORKERS = (Worker(name="adder", model="local/adder"), Worker(name="moody", model="local/moody"))
CHAIN = Workflow((Step(1, SOLVE_SUBTASK), Step(0, "Check the answer.", "all")))


def problem(i: int, benchmark: str = "math500") -> Problem:
    return Problem(
        id=f"p{i}", benchmark=benchmark, domain="math", split="test", question=f"Question {i}?", answer="7",
        grader="math",
    )  # fmt: skip


class Client:
    """The adder says 7; the moody one says 7 at the third sample of a repeat and 8 before; a question may fail."""

    def __init__(self, failures: dict[str, Exception] | None = None) -> None:
        self.failures = failures or {}
        self.asked: list[tuple[str, Sample]] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        await asyncio.sleep(0)
        self.asked.append((worker.name, Sample.of(sample)))
        for question, error in self.failures.items():
            if messages[0]["content"].startswith(question):
                raise error
        value = 7 if worker.name == "adder" or Sample.of(sample).repetition == 2 else 8
        return Response(f"\\boxed{{{value}}}", Usage(10, 5), 0.001, 0.5, "stop")


def run(
    method: Method, problems: Sequence[Problem], client: Client | None = None, repeats: int = 1
) -> list[OutcomeRow]:
    team = Team(WORKERS, client or Client())
    return asyncio.run(evaluate_method(method, problems, team, Evaluation(repeats=repeats)))


def test_a_static_workflow() -> None:
    [row] = run(Method.static(CHAIN), [problem(0)])
    assert (row.correct, row.steps, row.workers, row.tokens) == (1, 2, ("moody", "adder"), 30)
    assert (row.cost_usd, row.latency_s) == (pytest.approx(0.002), pytest.approx(1.0))
    assert (row.shape, row.completion) == ("verify_last", CHAIN.render())


def test_samples_are_opinions_and_the_chosen_one_counts() -> None:
    client = Client()
    [row] = run(Method.samples(Workflow.single(1), 3, lambda attempts: [2] * len(attempts)), [problem(0)], client)
    assert client.asked == [("moody", Sample(0, repetition)) for repetition in range(3)]
    # All are paid for, and run concurrently.
    assert (row.correct, row.steps, row.cost_usd, row.latency_s) == (1, 3, pytest.approx(0.003), pytest.approx(0.5))
    assert run(Method.samples(Workflow.single(1), 3), [problem(0)])[0].correct == 0


def test_repeats_are_other_answers_and_rows_stand_by_problem_then_repeat() -> None:
    client = Client()
    rows = run(Method.static(Workflow.single(0)), [problem(0), problem(1)], client, repeats=2)
    assert [(row.problem_id, row.repeat) for row in rows] == [("p0", 0), ("p0", 1), ("p1", 0), ("p1", 1)]
    assert {sample for _, sample in client.asked} == {Sample(0), Sample(1)}


def test_it_chooses_over_a_whole_benchmark_and_routes_by_the_question() -> None:
    seen: list[list[str]] = []

    def choose(attempts: Sequence[Attempt]) -> list[int]:
        seen.append([attempt.problem.benchmark for attempt in attempts])
        return [0] * len(attempts)

    asked = [problem(0), problem(1), problem(0, "rlpr")]
    run(Method(lambda problems, repeat: [(Workflow.single(0),)] * len(problems), choose), asked)
    assert seen == [["math500", "math500"], ["rlpr"]]
    routed = Method.routed(lambda problems: [Workflow.single(int(p.id == "p1")) for p in problems])
    assert [row.workers for row in run(routed, asked)] == [("adder",), ("moody",), ("adder",)]


def test_a_refusal_is_wrong_and_an_unreachable_branch_makes_the_row_unscorable() -> None:
    failures: dict[str, Exception] = {
        "Question 0": WorkerRefused("moody", "no"), "Question 1": WorkerUnreachable("moody", "gone"),
    }  # fmt: skip
    asked = [problem(i) for i in range(3)]
    refused, unreachable, right = run(Method.static(Workflow.single(0)), asked, Client(failures))
    assert (refused.correct, refused.unscorable, refused.status) == (0, False, "refused")
    assert (unreachable.correct, unreachable.unscorable) == (0, True)
    assert right.correct == 1


def test_a_spent_budget_is_raised_once_calls_in_flight_have_ended() -> None:
    client = Client({"Question 1": OverBudget("the cap")})
    with pytest.raises(OverBudget):
        run(Method.static(Workflow.single(0)), [problem(i) for i in range(3)], client)
    assert len(client.asked) == 3


def test_a_cancelled_evaluation_ends_what_it_has_begun() -> None:
    ended: list[str] = []

    class Slow(Client):
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
        ) -> Response:
            try:
                asked.set()
                await asyncio.Event().wait()
            finally:
                ended.append(worker.name)
            raise AssertionError("nothing wakes it")

    async def cancelled() -> None:
        going = asyncio.create_task(
            evaluate_method(Method.static(Workflow.single(0)), [problem(0)], Team(WORKERS, Slow()), Evaluation())
        )
        await asked.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert ended == ["adder"] and asyncio.all_tasks() == {asyncio.current_task()}

    asked = asyncio.Event()
    asyncio.run(cancelled())
