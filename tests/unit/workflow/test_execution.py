"""Parallel execution has the result of executing the steps one after another, sooner and at a lower cost."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Worker
from ops.core.errors import ConfigError, OverBudget, WorkerRefused, WorkerUnreachable
from ops.core.response import Message, Response
from ops.workflow.execution import execute, worker_messages
from ops.workflow.grammar import SOLVE, Step, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.unit.workflow.tools import CHAIN, QUESTION, WORKERS, Tool, failing, one_after_another, run, workflows


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
    offered = [
        worker.model_copy(update={"concurrency": limit})
        for worker, limit in zip(WORKERS, limits or [9] * 4, strict=True)
    ]
    scheduler = Scheduler() if limits else None
    trace = asyncio.run(
        execute(workflow, QUESTION, Team(offered, client), sample=sample, scheduler=scheduler)
    )
    wanted = one_after_another(workflow, sample)
    assert trace.status == "answered"
    assert trace.answer == wanted[len(workflow.steps) - 1]
    needed = workflow.needed()
    for step in trace.steps:
        assert step.status == ("ok" if step.index in needed else "pruned")
        assert step.response.text == (wanted[step.index] if step.index in needed else "")
    assert len(client.calls) == len(needed)
    assert {sample} == {call[2] for call in client.calls}


@pytest.mark.parametrize(
    ("said", "status"), [('{"a": 1}', "answered"), ("[" * 100_000, "malformed"), ("7 apples", "malformed")]
)
def test_the_form_of_the_answer_is_asked_of_the_last_step_alone(said: str, status: str) -> None:
    asked: list[dict[str, Any] | None] = []

    class Answering(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            asked.append(worker.response_format)
            return replace(await super().complete(worker, messages, sample=sample), text=said)

    form = {"type": "json_object"}
    workflow = Workflow((Step(0, "one"), Step(1, "two", "all")))
    team = Team(WORKERS, Answering(), answer_format=form)
    trace = asyncio.run(execute(workflow, QUESTION, team))
    assert asked == [None, form]
    assert trace.status == status
    assert trace.answer == (said if status == "answered" else None)


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_a_batch_through_one_scheduler_reads_as_one_after_another(data: st.DataObject) -> None:
    batch = data.draw(st.lists(workflows(), min_size=2, max_size=12))
    limits = data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))
    chance = data.draw(st.randoms(use_true_random=False))
    offered = [w.model_copy(update={"concurrency": limit}) for w, limit in zip(WORKERS, limits, strict=True)]
    running, most = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)

    class Limited(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            number = int(worker.name[1:])
            running[number] += 1
            most[number] = max(most[number], running[number])
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            running[number] -= 1
            return await super().complete(worker, messages, sample=sample)

    async def together() -> list[WorkflowTrace]:
        client, scheduler = Limited(), Scheduler()
        return await asyncio.gather(*(execute(w, QUESTION, Team(offered, client), scheduler=scheduler) for w in batch))

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
    assert run(workflow, Tool(), scheduler=Scheduler()).answer == one_after_another(workflow, 0)[49]


def test_messages_of_a_lone_step_are_what_precaching_asks() -> None:
    assert worker_messages(Workflow.single(0), 0, QUESTION, {}) == [
        {"role": "user", "content": f"{QUESTION}\n\nSubtask: {SOLVE}"}
    ]


def test_visible_steps_become_past_turns() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))
    assert worker_messages(workflow, 2, QUESTION, {0: "A", 1: "B"}) == [
        {"role": "user", "content": f"{QUESTION}\n\nSubtask: a"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "Subtask: b"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "Subtask: c"},
    ]


def test_independent_steps_are_in_flight_together() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c"), Step(3, "join", "all")))

    async def scenario() -> WorkflowTrace:
        barrier = asyncio.Barrier(3)

        async def meet(subtask: str) -> None:
            if subtask != "join":
                await barrier.wait()  # no call continues before all three have arrived

        async with asyncio.timeout(10):
            return await execute(workflow, QUESTION, Team(WORKERS, Tool(meet)))

    assert asyncio.run(scenario()).status == "answered"


def test_a_step_waits_for_what_it_sees_and_for_nothing_else() -> None:
    # "late" sees nothing, "after a" only "a", "end" both. "late" is held until "after a" has ended.
    workflow = Workflow((Step(0, "a"), Step(1, "late"), Step(2, "after a", (0,)), Step(3, "end", (1, 2))))

    async def scenario() -> list[str]:
        passed = asyncio.Event()

        async def hold(subtask: str) -> None:
            if subtask == "late":
                await passed.wait()
            if subtask == "after a":
                passed.set()

        client = Tool(hold)
        async with asyncio.timeout(10):
            await execute(workflow, QUESTION, Team(WORKERS, client))
        return client.ended

    assert asyncio.run(scenario()) == ["a", "after a", "late", "end"]


def test_steps_that_cannot_reach_the_answer_are_never_asked() -> None:
    workflow = Workflow((Step(0, "lost"), Step(1, "lost too", "all"), Step(2, "kept"), Step(3, "end", (2,))))
    client = Tool()
    trace = run(workflow, client)
    assert client.ended == ["kept", "end"]
    assert [step.status for step in trace.steps] == ["pruned", "pruned", "ok", "ok"]
    assert trace.calls == 2


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
    class Blank(Tool):
        async def complete(self, worker: Worker, messages: Sequence[Message], **options: Any) -> Response:
            response = await super().complete(worker, messages, **options)
            return replace(response, text=text) if worker.name == "w1" else response

    client = Blank()
    trace = run(CHAIN, client)
    assert (trace.status, trace.answer) == ("empty", None)
    assert [step.status for step in trace.steps] == ["ok", "empty", "not_run"]
    assert [call[0] for call in client.calls] == ["w0", "w1"]


def test_nothing_is_started_after_a_failure() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))
    client = failing("a", WorkerRefused("no"))  # answers at once: "b" has not been called yet
    assert [step.status for step in run(workflow, client).steps] == ["refused", "not_run", "not_run"]
    assert len(client.calls) == 1


def test_refused_outweighs_unreachable() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))

    async def scenario() -> WorkflowTrace:
        together = asyncio.Barrier(2)

        async def both_fail(subtask: str) -> None:
            await together.wait()
            raise WorkerUnreachable("down") if subtask == "a" else WorkerRefused("no")

        return await execute(workflow, QUESTION, Team(WORKERS, Tool(both_fail)))

    trace = asyncio.run(scenario())
    assert (trace.status, trace.error) == ("refused", "no")
    assert [step.status for step in trace.steps] == ["unreachable", "refused", "not_run"]


@pytest.mark.parametrize("error", [WorkerRefused("no"), OverBudget("the cap of $1 is reached")])
def test_calls_in_flight_finish_when_another_fails(error: Exception) -> None:
    workflow = Workflow((Step(0, "bad"), Step(1, "slow"), Step(2, "end", "all")))

    async def scenario() -> Tool:
        together = asyncio.Barrier(2)

        async def hook(subtask: str) -> None:
            await together.wait()
            if subtask == "bad":
                raise error
            for _ in range(5):
                await asyncio.sleep(0)

        client = Tool(hook)
        if isinstance(error, OverBudget):
            with pytest.raises(OverBudget, match="cap"):
                await execute(workflow, QUESTION, Team(WORKERS, client))
        else:
            assert (await execute(workflow, QUESTION, Team(WORKERS, client))).steps[1].status == "ok"
        return client

    client = asyncio.run(scenario())
    assert client.ended == ["slow"]
    assert client.cancelled == []


@pytest.mark.parametrize(
    "error",
    [OverBudget("cap"), ConfigError("pool.yaml", "workers.0", "no key", "Set it"), RuntimeError("a bug")],
)
def test_other_errors_reach_the_caller_as_themselves(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(CHAIN, failing("b", error))
    assert caught.value is error


def test_a_bug_cancels_what_is_in_flight_and_leaves_no_task() -> None:
    workflow = Workflow((Step(0, "bug"), Step(1, "endless"), Step(2, "end", "all")))

    async def scenario() -> tuple[Tool, int]:
        together = asyncio.Barrier(2)

        async def hook(subtask: str) -> None:
            await together.wait()
            if subtask == "bug":
                raise RuntimeError("a bug")
            await asyncio.Event().wait()

        client = Tool(hook)
        with pytest.raises(RuntimeError):
            await execute(workflow, QUESTION, Team(WORKERS, client))
        return client, len(asyncio.all_tasks())

    client, tasks = asyncio.run(scenario())
    assert client.cancelled == ["endless"]
    assert tasks == 1


def test_cancellation_reaches_every_call_and_leaves_no_task() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "end", "all")))

    async def scenario() -> tuple[Tool, int]:
        both_in_flight = asyncio.Barrier(3)

        async def forever(_: str) -> None:
            await both_in_flight.wait()
            await asyncio.Event().wait()

        client = Tool(forever)
        task = asyncio.create_task(execute(workflow, QUESTION, Team(WORKERS, client)))
        await both_in_flight.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return client, len(asyncio.all_tasks())

    client, tasks = asyncio.run(scenario())
    assert sorted(client.cancelled) == ["a", "b"]
    assert tasks == 1


def test_totals_and_critical_path() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "bb"), Step(2, "c", (0,)), Step(3, "end", (1, 2))))
    trace = run(workflow, Tool())
    assert trace.prompt_tokens == 10 * (1 + 1 + 3 + 5)
    assert trace.completion_tokens == 1 + 2 + 1 + 3
    assert trace.tokens == trace.prompt_tokens + trace.completion_tokens
    assert trace.cost_usd == pytest.approx(0.004)
    assert trace.cached == 2
    assert trace.latency_s == 3.0  # a, c, end: b runs in parallel
    assert trace.wall_s > 0
    row = json.loads(json.dumps(trace.as_row()))
    assert row["workflow"] == workflow.render()
    assert row["steps"][3]["sees"] == [1, 2]
    assert (row["answer"], row["calls"], row["latency_s"]) == (trace.answer, 4, 3.0)


def test_a_workflow_that_the_team_cannot_run_is_refused_before_any_call() -> None:
    client = Tool()
    with pytest.raises(ValueError, match="keep the previous"):
        run(Workflow(()), client)
    with pytest.raises(ValueError, match="worker 4 is not among the 4"):
        run(Workflow((Step(0, "a"), Step(4, "b", "all"))), client)
    assert client.calls == []
