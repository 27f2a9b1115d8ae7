"""A busy worker takes the call of the workflow with the most remaining work; no call is lost, no slot is leaked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.cache import ResponseCache
from ops.config import Worker
from ops.core.response import Message, Response
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team


def worker(limit: int, name: str = "w") -> Worker:
    return Worker(name=name, model="local/none", concurrency=limit)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_most_urgent_goes_first_and_equals_keep_their_order(urgencies: list[int], limit: int) -> None:
    async def scenario() -> list[int]:
        scheduler, order, gate = Scheduler(), [], asyncio.Event()

        async def hold() -> None:
            async with scheduler.slot(worker(limit), lambda: 9.0):
                await gate.wait()

        async def call(number: int) -> None:
            async with scheduler.slot(worker(limit), lambda: float(urgencies[number])):
                order.append(number)

        holders = [asyncio.create_task(hold()) for _ in range(limit)]
        await asyncio.sleep(0)
        callers = [asyncio.create_task(call(number)) for number in range(len(urgencies))]
        await asyncio.sleep(0)
        assert scheduler.waiting(worker(limit)) == len(urgencies)
        gate.set()
        await asyncio.gather(*holders, *callers)
        return order

    assert asyncio.run(scenario()) == sorted(range(len(urgencies)), key=lambda n: (-urgencies[n], n))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=40), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_slots_survive_cancellation_and_errors(calls: list[tuple[int, int, bool]], limit: int) -> None:
    async def scenario() -> tuple[int, list[BaseException | None]]:
        scheduler, running, most = Scheduler(), 0, 0

        async def call(urgency: int, pauses: int, breaks: bool) -> None:
            nonlocal running, most
            async with scheduler.slot(worker(limit), lambda: urgency):
                running += 1
                most = max(most, running)
                try:
                    for _ in range(pauses):
                        await asyncio.sleep(0)
                    if breaks:
                        raise ValueError("broken")
                finally:
                    running -= 1

        tasks = [asyncio.create_task(call(*arguments)) for arguments in calls]
        for task in tasks[::3]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(limit):  # every slot is free again; otherwise this would wait forever
            await asyncio.wait_for(_taken(scheduler, limit), 5)
        return most, []

    most, _ = asyncio.run(scenario())
    assert most <= limit


async def _taken(scheduler: Scheduler, limit: int) -> None:
    async def every(left: int) -> None:
        if left:
            async with scheduler.slot(worker(limit), lambda: 1.0):
                await every(left - 1)

    await every(limit)


def test_workers_have_slots_of_their_own() -> None:
    async def scenario() -> int:
        scheduler = Scheduler()
        a, b = (scheduler.slot(worker(1, name), lambda: 1.0) for name in "ab")
        async with a, b:  # both calls are active, though each worker has one slot
            await _taken(scheduler, 1)  # and a third worker's slot is free
            return scheduler.waiting(worker(1, "a"))

    assert asyncio.run(asyncio.wait_for(scenario(), 5)) == 0


def test_a_workers_speed_is_learnt_unless_it_is_declared() -> None:
    async def scenario() -> tuple[float, float]:
        scheduler = Scheduler()
        declared = worker(1, "a").model_copy(update={"latency_s": 2.5})
        for tool in (declared, worker(1, "b")):
            async with scheduler.slot(tool, lambda: 1.0):
                await asyncio.sleep(0.02)
        return scheduler.expected_s(declared), scheduler.expected_s(worker(1, "b"))

    declared, learnt = asyncio.run(scenario())
    assert declared == 2.5
    assert 0.015 < learnt < 1.0


class Recorder:
    """Record the order in which the calls reach one busy worker."""

    def __init__(self) -> None:
        self.order: list[str] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        self.order.append(messages[-1]["content"].rpartition("Subtask: ")[2])
        await asyncio.sleep(0.02)
        return Response("ok", 1, 1, 0.0, 0.0, "stop")


def test_the_first_step_of_a_long_chain_overtakes_lone_steps() -> None:
    offered = [worker(1)]
    lone = [Workflow.single(0, f"lone {number}") for number in range(3)]
    chain = Workflow((Step(0, "first"), Step(0, "second", "all"), Step(0, "third", "all")))

    async def scenario() -> list[str]:
        client, scheduler = Recorder(), Scheduler()
        await asyncio.gather(*(execute(w, "Q", Team(offered, client), scheduler=scheduler) for w in [*lone, chain]))
        return client.order

    # Between a step's end and its successor's call, a waiting call takes the slot: "lone 1", "lone 2".
    assert asyncio.run(scenario()) == ["lone 0", "first", "lone 1", "second", "lone 2", "third"]


def test_cached_responses_wait_for_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is already in flight is not repeated; a slot is held only during a real call of a worker."""
    from ops.config import load_pool
    from ops.core.workspace import Workspace

    tool = load_pool(Workspace.find().config, "quickstart").worker("guesser")
    tool = tool.model_copy(update={"concurrency": 1})
    workflow = Workflow.single(0)

    async def scenario() -> tuple[bool, list[bool]]:
        ledger = Ledger(tmp_path / "ledger.sqlite")
        client = WorkerClient(ResponseCache(tmp_path / "cache"), ledger, Account("test", "test", 1.0))
        await execute(workflow, "What is 1 + 1?", Team([tool], client))
        scheduler = Scheduler()
        async with scheduler.slot(tool, lambda: 1.0):  # the only slot is taken
            warm = await asyncio.wait_for(
                execute(workflow, "What is 1 + 1?", Team([tool], client), scheduler=scheduler), timeout=30
            )
            new = [
                asyncio.create_task(execute(workflow, "What is 2 + 2?", Team([tool], client), scheduler=scheduler))
                for _ in range(3)
            ]
            await asyncio.sleep(0.05)
            assert scheduler.waiting(tool) == 1
        return warm.steps[0].response.cached, [trace.steps[0].response.cached for trace in await asyncio.gather(*new)]

    warm, new = asyncio.run(scenario())
    assert warm
    assert sorted(new) == [False, True, True]
