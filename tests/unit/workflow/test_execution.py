"""Parallel execution has the result of executing the steps one after another, sooner and at a lower cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Worker
from ops.core.errors import ConfigError, OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.workflow.execution import PreviousRound, build_worker_messages, execute_workflow
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.builders import Answering
from tests.unit.workflow.tools import CHAIN, QUESTION, WORKERS, Queued, Tool, failing, one_after_another, run, workflows

JOIN = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))
"""Two independent steps, and one that sees both."""


@given(
    workflows(),
    st.integers(0, 3),
    st.lists(st.integers(1, 3), min_size=4, max_size=4) | st.none(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_the_answer_is_that_of_the_sequential_reading(
    workflow: Workflow, sample: int, limits: list[int] | None, chance: random.Random
) -> None:
    """This holds for all limits and any order of the workers' answers."""

    async def dawdle(_: str) -> None:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)

    client = Tool(dawdle)
    team = Team(limited(limits), Queued(client)) if limits else Team(WORKERS, client)
    trace = asyncio.run(execute_workflow(workflow, QUESTION, team, sample=sample))
    wanted = one_after_another(workflow, sample)
    assert trace.status == "answered"
    assert trace.answer == wanted[len(workflow.steps) - 1]
    needed = workflow.needed_steps()
    for step in trace.steps:
        assert step.status == ("ok" if step.index in needed else "pruned")
        assert step.response.text == (wanted[step.index] if step.index in needed else "")
    assert len(client.calls) == len(needed)
    assert {sample} == {call[2] for call in client.calls}


def limited(limits: Sequence[int]) -> list[Worker]:
    return [w.model_copy(update={"concurrency": limit}) for w, limit in zip(WORKERS, limits, strict=True)]


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_a_batch_through_the_same_queues_reads_as_one_after_another(data: st.DataObject) -> None:
    batch = data.draw(st.lists(workflows(), min_size=2, max_size=12))
    limits = data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))
    chance = data.draw(st.randoms(use_true_random=False))
    running, most = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)

    class Limited(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], **options: Any) -> Response:
            number = int(worker.name[1:])
            running[number] += 1
            most[number] = max(most[number], running[number])
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            running[number] -= 1
            return await super().complete(worker, messages, **options)

    async def together() -> list[WorkflowTrace]:
        team = Team(limited(limits), Queued(Limited()))
        return await asyncio.gather(*(execute_workflow(workflow, QUESTION, team) for workflow in batch))

    for workflow, trace in zip(batch, asyncio.run(together()), strict=True):
        assert trace.answer == one_after_another(workflow, 0)[len(workflow.steps) - 1]
    assert all(most[number] <= limit for number, limit in enumerate(limits))


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_fifty_steps_are_as_good_as_five(data: st.DataObject) -> None:
    steps = []
    for index in range(50):
        seen = data.draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else ()
        steps.append(Step(data.draw(st.integers(0, 3)), f"do {index}", tuple(sorted(seen))))
    steps[-1] = Step(0, "end", data.draw(st.sampled_from(["all", (48, 7)])))
    workflow = Workflow(tuple(steps))
    assert run(workflow, Tool()).answer == one_after_another(workflow, 0)[49]


@pytest.mark.parametrize(
    ("said", "status"), [('{"a": 1}', "answered"), ("[" * 100_000, "malformed"), ("7 apples", "malformed")]
)
def test_the_form_of_the_answer_is_asked_of_the_last_step_alone(said: str, status: str) -> None:
    asked = []

    class Forming(Answering):
        async def complete(self, worker: Worker, messages: Sequence[Message], **options: Any) -> Response:
            asked.append(dict(options["parameters"]))
            return await super().complete(worker, messages, **options)

    form = {"type": "json_object"}
    workflow = Workflow((Step(0, "one"), Step(1, "two", "all")))
    team = Team(WORKERS, Forming(said))
    trace = asyncio.run(execute_workflow(workflow, QUESTION, team, parameters={"response_format": form}))
    assert asked == [{}, {"response_format": form}]
    assert trace.status == status
    assert trace.answer == (said if status == "answered" else None)


@pytest.mark.parametrize(
    ("step", "previous", "contents"),
    [
        pytest.param(
            Step(0, SOLVE_SUBTASK),
            None,
            [f"{QUESTION}\n\nSubtask: {SOLVE_SUBTASK}"],
            id="a lone step, as precaching asks it",
        ),
        pytest.param(
            Step(2, "c", "all"),
            None,
            [f"{QUESTION}\n\nSubtask: a", "A", "Subtask: b", "B", "Subtask: c"],
            id="visible steps as past turns",
        ),
        pytest.param(
            Step(2, "c", "all"),
            PreviousRound("Solve it.", "Perhaps 41"),
            [f"{QUESTION}\n\nSubtask: Solve it.", "Perhaps 41", "Subtask: a", "A", "Subtask: b", "B", "Subtask: c"],
            id="with the answer of the previous round",
        ),
        pytest.param(
            Step(2, "c"),
            PreviousRound("x", "y"),
            [f"{QUESTION}\n\nSubtask: c"],
            id="without access, no previous answer",
        ),
    ],
)
def test_messages_to_a_worker(step: Step, previous: PreviousRound | None, contents: list[str]) -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), step))
    assert build_worker_messages(workflow, 2, QUESTION, {0: "A", 1: "B"}, previous) == [
        {"role": ("user", "assistant")[place % 2], "content": content} for place, content in enumerate(contents)
    ]


def test_a_first_step_with_access_to_all_sees_the_previous_answer_alone() -> None:
    messages = build_worker_messages(Workflow((Step(0, "check it", "all"),)), 0, QUESTION, {}, PreviousRound("x", "y"))
    assert [message["content"] for message in messages] == [f"{QUESTION}\n\nSubtask: x", "y", "Subtask: check it"]


def test_independent_steps_are_in_flight_together() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c"), Step(3, "join", "all")))
    barrier = asyncio.Barrier(3)

    async def meet(subtask: str) -> None:
        if subtask != "join":
            async with asyncio.timeout(10):
                await barrier.wait()  # no call continues before all three have arrived

    assert run(workflow, Tool(meet)).status == "answered"


def test_a_step_waits_for_what_it_sees_and_for_nothing_else() -> None:
    # "late" sees nothing, "after a" only "a", "end" both. "late" is held until "after a" has ended.
    workflow = Workflow((Step(0, "a"), Step(1, "late"), Step(2, "after a", (0,)), Step(3, "end", (1, 2))))
    passed = asyncio.Event()

    async def hold(subtask: str) -> None:
        if subtask == "late":
            async with asyncio.timeout(10):
                await passed.wait()
        if subtask == "after a":
            passed.set()

    client = Tool(hold)
    run(workflow, client)
    assert client.ended == ["a", "after a", "late", "end"]


def test_steps_that_cannot_reach_the_answer_are_never_asked() -> None:
    workflow = Workflow((Step(0, "lost"), Step(1, "lost too", "all"), Step(2, "kept"), Step(3, "end", (2,))))
    client = Tool()
    trace = run(workflow, client)
    assert client.ended == ["kept", "end"]
    assert [step.status for step in trace.steps] == ["pruned", "pruned", "ok", "ok"]
    assert trace.calls == 2


# ── failures ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "status"),
    [(WorkerUnreachable("503 four times"), "unreachable"), (WorkerRefused("filter"), "refused")],
)
def test_a_failed_step_ends_the_workflow_and_says_why(error: Exception, status: str) -> None:
    client = failing("b", error)
    trace = run(CHAIN, client)
    assert (trace.status, trace.answer, trace.error) == (status, None, str(error))
    assert [step.status for step in trace.steps] == ["ok", status, "not_run"]
    assert trace.steps[0].response.text
    assert [call[0] for call in client.calls] == ["w0", "w1"]
    assert trace.cost_usd == pytest.approx(0.001)  # the successful call was paid


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_response_fails_its_step_and_is_shown_to_no_later_one(text: str) -> None:
    client = Answering(lambda worker, _: text if worker.name == "w1" else "yes")
    trace = asyncio.run(execute_workflow(CHAIN, QUESTION, Team(WORKERS, client)))
    assert (trace.status, trace.answer) == ("empty", None)
    assert [step.status for step in trace.steps] == ["ok", "empty", "not_run"]
    assert [name for name, *_ in client.asked] == ["w0", "w1"]


def test_nothing_is_started_after_a_failure() -> None:
    client = failing("a", WorkerRefused("no"))  # answers at once: "b" has not been called yet
    assert [step.status for step in run(JOIN, client).steps] == ["refused", "not_run", "not_run"]
    assert len(client.calls) == 1


def test_refused_outweighs_unreachable() -> None:
    together = asyncio.Barrier(2)

    async def both_fail(subtask: str) -> None:
        await together.wait()
        raise WorkerUnreachable("down") if subtask == "a" else WorkerRefused("no")

    trace = run(JOIN, Tool(both_fail))
    assert (trace.status, trace.error) == ("refused", "no")
    assert [step.status for step in trace.steps] == ["unreachable", "refused", "not_run"]


@pytest.mark.parametrize("error", [WorkerRefused("no"), OverBudget("the cap of $1 is reached")])
def test_calls_in_flight_finish_when_another_fails(error: Exception) -> None:
    together = asyncio.Barrier(2)

    async def hook(subtask: str) -> None:
        await together.wait()
        if subtask == "a":
            raise error
        for _ in range(5):
            await asyncio.sleep(0)

    client = Tool(hook)
    if isinstance(error, OverBudget):
        with pytest.raises(OverBudget, match="cap"):
            run(JOIN, client)
    else:
        assert run(JOIN, client).steps[1].status == "ok"
    assert client.ended == ["b"]
    assert client.cancelled == []


@pytest.mark.parametrize(
    "error",
    [OverBudget("cap"), ConfigError("pool.yaml", "workers.0", "no key", "Set it"), RuntimeError("a bug")],
)
def test_other_errors_reach_the_caller_as_themselves(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(CHAIN, failing("b", error))
    assert caught.value is error


@pytest.mark.parametrize("how", ["a bug", "cancelled"])
def test_calls_in_flight_are_cancelled_and_no_task_is_left(how: str) -> None:
    async def scenario() -> tuple[Tool, int]:
        in_flight = asyncio.Barrier(3)

        async def hook(subtask: str) -> None:
            await in_flight.wait()
            if how == "a bug" and subtask == "a":
                raise RuntimeError("a bug")
            await asyncio.Event().wait()

        client = Tool(hook)
        task = asyncio.create_task(execute_workflow(JOIN, QUESTION, Team(WORKERS, client)))
        await in_flight.wait()
        if how == "cancelled":
            task.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else RuntimeError):
            await task
        return client, len(asyncio.all_tasks())

    client, tasks = asyncio.run(scenario())
    assert sorted(client.cancelled) == (["a", "b"] if how == "cancelled" else ["b"])
    assert tasks == 1


def test_a_workflow_that_the_team_cannot_run_is_refused_before_any_call() -> None:
    client = Tool()
    with pytest.raises(ValueError, match="keep the previous"):
        run(Workflow(()), client)
    with pytest.raises(ValueError, match="worker 4 is not among the 4"):
        run(Workflow((Step(0, "a"), Step(4, "b", "all"))), client)
    assert client.calls == []


# ── samples ──────────────────────────────────────────────────────────────────

AGAIN, VOTE = Step(0, "Solve."), Step(1, "Vote.", "all")


def samples(*steps: Step, base: int | Sample = 0) -> list[tuple[str, Sample]]:
    client = Answering("Yes.")
    asyncio.run(execute_workflow(Workflow(steps), "Why?", Team(WORKERS, client), sample=base))
    return [(name, sample) for name, _, sample in client.asked]


def test_a_step_that_asks_again_is_another_sample() -> None:
    asked = samples(AGAIN, AGAIN, AGAIN, VOTE, base=3)
    assert asked == [("w0", Sample(3)), ("w0", Sample(3, 1)), ("w0", Sample(3, 2)), ("w1", Sample(3))]


def test_steps_of_equal_branches_share_no_sample() -> None:
    asked = [sample for branch in range(3) for sample in samples(AGAIN, AGAIN, VOTE, base=Sample(1, branch))]
    assert len(set(asked)) == len(asked)


def test_another_worker_subtask_or_view_is_no_repetition() -> None:
    others = (Step(1, "Solve."), Step(0, "Solve it."), Step(0, "Solve.", "all"))
    assert [sample for _, sample in samples(AGAIN, *others, VOTE)] == [Sample()] * 5


def test_steps_that_are_not_run_do_not_count() -> None:
    """The first step does not contribute to the answer, so the second is the first that is executed."""
    assert samples(AGAIN, AGAIN) == [("w0", Sample())]
