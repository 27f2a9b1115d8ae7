"""Execution gives what reading the steps one after another gives, only sooner and cheaper."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Worker
from ops.errors import ConfigError, OverBudget, WorkerRefused, WorkerUnreachable
from ops.workers.types import Message, Response
from ops.workflow.execution import execute, worker_messages
from ops.workflow.grammar import SOLVE, Step, Workflow
from ops.workflow.trace import Trace

QUESTION = "What is 6 * 7?\nAnswer in one word."
WORKERS = tuple(Worker(name=f"w{index}", model=f"local/w{index}") for index in range(4))


def reply(worker: str, messages: Sequence[Message], sample: int) -> str:
    """Depends on everything that a worker is given, so two different contexts show in the answer."""
    material = json.dumps([worker, list(messages), sample], sort_keys=True)
    return f"{worker} says {hashlib.sha256(material.encode()).hexdigest()[:16]}"


class Tool:
    """A client in this process: deterministic, with a hook that may wait or raise before it answers."""

    def __init__(self, hook: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.hook = hook
        self.asked: list[tuple[str, list[Message], int]] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        subtask = messages[-1]["content"].rpartition("Subtask: ")[2]
        self.asked.append((worker.name, list(messages), sample))
        try:
            if self.hook:
                await self.hook(subtask)
        except asyncio.CancelledError:
            self.cancelled.append(subtask)
            raise
        self.ended.append(subtask)
        text = reply(worker.name, messages, sample)
        return Response(text, 10 * len(messages), len(subtask), 0.001, 1.0, "stop", cached=len(messages) > 1)


def one_after_another(workflow: Workflow, sample: int) -> dict[int, str]:
    """The specification read literally, and independently of the code under test: every step, in order."""
    said: dict[int, str] = {}
    for index, step in enumerate(workflow.steps):
        turns: list[Message] = []
        for earlier in range(index):
            if step.access == "all" or (step.access != "none" and earlier in step.access):
                turns += [
                    {"role": "user", "content": f"Subtask: {workflow.steps[earlier].subtask}"},
                    {"role": "assistant", "content": said[earlier]},
                ]
        turns.append({"role": "user", "content": f"Subtask: {step.subtask}"})
        turns[0] = {"role": "user", "content": f"{QUESTION}\n\n{turns[0]['content']}"}
        said[index] = reply(f"w{step.worker}", turns, sample)
    return said


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps = []
    for index in range(draw(st.integers(1, 6))):
        access = draw(st.sampled_from(["none", "all", "some"]))
        if access == "some":
            access = tuple(sorted(draw(st.sets(st.integers(0, index - 1))))) if index else "none"
        steps.append(Step(draw(st.integers(0, 3)), f"{draw(st.sampled_from(['find', 'check']))} {index}", access))
    return Workflow(tuple(steps))


def run(workflow: Workflow, client: Tool, sample: int = 0) -> Trace:
    return asyncio.run(execute(workflow, QUESTION, WORKERS, client, sample=sample))


@given(workflows(), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_the_answer_is_that_of_the_sequential_reading(workflow: Workflow, sample: int, chance) -> None:
    async def dawdle(_: str) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    client = Tool(dawdle)
    trace = run(workflow, client, sample)
    wanted = one_after_another(workflow, sample)
    assert trace.status == "answered"
    assert trace.answer == wanted[len(workflow.steps) - 1]
    needed = workflow.needed()
    for step in trace.steps:
        assert step.status == ("ok" if step.index in needed else "pruned")
        assert step.response == (wanted[step.index] if step.index in needed else "")
    assert len(client.asked) == len(needed)
    assert {sample} == {asked[2] for asked in client.asked}


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

    async def scenario() -> Trace:
        barrier = asyncio.Barrier(3)

        async def meet(subtask: str) -> None:
            if subtask != "join":
                await barrier.wait()  # nobody passes before all three are here

        async with asyncio.timeout(10):
            return await execute(workflow, QUESTION, WORKERS, Tool(meet))

    assert asyncio.run(scenario()).status == "answered"


def test_a_step_waits_for_what_it_sees_and_for_nothing_else() -> None:
    # "late" sees nothing, "after a" only "a", "end" both. "late" is held until "after a" is through.
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
            await execute(workflow, QUESTION, WORKERS, client)
        return client.ended

    assert asyncio.run(scenario()) == ["a", "after a", "late", "end"]


def test_steps_that_cannot_reach_the_answer_are_never_asked() -> None:
    workflow = Workflow((Step(0, "lost"), Step(1, "lost too", "all"), Step(2, "kept"), Step(3, "end", (2,))))
    client = Tool()
    trace = run(workflow, client)
    assert client.ended == ["kept", "end"]
    assert [step.status for step in trace.steps] == ["pruned", "pruned", "ok", "ok"]
    assert trace.calls == 2


CHAIN = Workflow((Step(0, "a"), Step(1, "b", "all"), Step(2, "c", "all")))


def failing(where: str, error: Exception) -> Tool:
    async def fail(subtask: str) -> None:
        if subtask == where:
            raise error

    return Tool(fail)


@pytest.mark.parametrize(
    ("error", "status"),
    [(WorkerUnreachable("503 four times"), "unreachable"), (WorkerRefused("filter"), "refused")],
)
def test_a_failed_step_ends_the_workflow_and_says_why(error: Exception, status: str) -> None:
    client = failing("b", error)
    trace = run(CHAIN, client)
    assert (trace.status, trace.answer, trace.error) == (status, None, str(error))
    assert [step.status for step in trace.steps] == ["ok", status, "not_run"]
    assert trace.steps[0].response
    assert [asked[0] for asked in client.asked] == ["w0", "w1"]
    assert trace.cost_usd == pytest.approx(0.001)  # the call that did succeed was paid for


def test_nothing_is_started_after_a_failure() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))
    client = failing("a", WorkerRefused("no"))  # answers at once: "b" has not had its turn yet
    assert [step.status for step in run(workflow, client).steps] == ["refused", "not_run", "not_run"]
    assert len(client.asked) == 1


def test_refused_outweighs_unreachable() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))

    async def scenario() -> Trace:
        together = asyncio.Barrier(2)

        async def both_fail(subtask: str) -> None:
            await together.wait()
            raise WorkerUnreachable("down") if subtask == "a" else WorkerRefused("no")

        return await execute(workflow, QUESTION, WORKERS, Tool(both_fail))

    trace = asyncio.run(scenario())
    assert (trace.status, trace.error) == ("refused", "no")
    assert [step.status for step in trace.steps] == ["unreachable", "refused", "not_run"]


@pytest.mark.parametrize("error", [WorkerRefused("no"), OverBudget("the cap of $1 is reached")])
def test_calls_in_flight_are_let_finish_when_another_fails(error: Exception) -> None:
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
                await execute(workflow, QUESTION, WORKERS, client)
        else:
            assert (await execute(workflow, QUESTION, WORKERS, client)).steps[1].status == "ok"
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
            await execute(workflow, QUESTION, WORKERS, client)
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
        task = asyncio.create_task(execute(workflow, QUESTION, WORKERS, client))
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
    assert trace.latency_s == 3.0  # a, c, end: b runs beside them
    assert trace.wall_s > 0
    row = json.loads(json.dumps(trace.as_row()))
    assert row["workflow"] == workflow.render()
    assert row["steps"][3]["sees"] == [1, 2]
    assert (row["answer"], row["calls"], row["latency_s"]) == (trace.answer, 4, 3.0)


def test_what_cannot_be_run_is_refused_before_any_call() -> None:
    client = Tool()
    with pytest.raises(ValueError, match="keep the previous"):
        run(Workflow(()), client)
    with pytest.raises(ValueError, match="worker 4 is not among the 4"):
        run(Workflow((Step(0, "a"), Step(4, "b", "all"))), client)
    assert client.asked == []
