"""A busy worker takes the call of the workflow with the most remaining work; no call is lost, no slot is leaked. A
deadline limits the work along a workflow's longest chain of steps, and no waiting for slots."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Execution, Worker, load_pool
from ops.core.response import Message, Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.workers.client import WorkerClient
from ops.workers.scheduling import my_turn, waiting
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.faults.clients import make_client as make_client
from tests.unit.workflow.tools import QUESTION, Tool


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
    async def scenario() -> int:
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
        return most

    assert asyncio.run(scenario()) <= limit


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


def test_the_first_step_of_a_long_chain_overtakes_lone_steps() -> None:
    lone = [Workflow.single(0, f"lone {number}") for number in range(3)]
    chain = Workflow((Step(0, "first"), Step(0, "second", "all"), Step(0, "third", "all")))

    async def scenario() -> list[str]:
        client, scheduler = Tool(lambda _: asyncio.sleep(0.02)), Scheduler()
        team = Team([worker(1)], client)
        await asyncio.gather(*(execute(w, "Q", team, scheduler=scheduler) for w in [*lone, chain]))
        return client.ended

    # Between a step's end and its successor's call, a waiting call takes the slot: "lone 1", "lone 2".
    assert asyncio.run(scenario()) == ["lone 0", "first", "lone 1", "second", "lone 2", "third"]


def test_cached_responses_wait_for_no_slot(make_client: Callable[..., WorkerClient]) -> None:
    """A call that is already in flight is not repeated; a slot is held only during a real call of a worker."""
    tool = load_pool(Workspace.find().config, "quickstart").worker("guesser").model_copy(update={"concurrency": 1})
    team = Team([tool], make_client())

    def ask(question: str, scheduler: Scheduler | None) -> Coroutine[Any, Any, WorkflowTrace]:
        return execute(Workflow.single(0), question, team, scheduler=scheduler)

    async def scenario() -> tuple[bool, list[bool]]:
        await ask("What is 1 + 1?", None)
        scheduler = Scheduler()
        async with scheduler.slot(tool, lambda: 1.0):  # the only slot is taken
            warm = await asyncio.wait_for(ask("What is 1 + 1?", scheduler), timeout=30)
            new = [asyncio.create_task(ask("What is 2 + 2?", scheduler)) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert scheduler.waiting(tool) == 1
        return warm.steps[0].response.cached, [trace.steps[0].response.cached for trace in await asyncio.gather(*new)]

    warm, new = asyncio.run(scenario())
    assert warm
    assert sorted(new) == [False, True, True]


# ── deadlines, on virtual time ───────────────────────────────────────────────

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """A selector that moves the clock to the next timer instead of sleeping."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time; it cannot wait for anything outside the loop, such as threads or sockets."""

    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


CALL_S = 20.0
CHAIN = Workflow((Step(0, "a"), Step(0, "b", "all"), Step(0, "c", "all")))


class Slow:
    """A client whose calls take `CALL_S`, or the seconds given for their subtask."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.paid = 0

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        self.paid += 1
        await asyncio.sleep(self.seconds.get(messages[-1]["content"].rpartition("Subtask: ")[2], CALL_S))
        return Response("yes", Usage(1, 1), 0.0, CALL_S, "stop")


def run_all(
    workflows: Sequence[Workflow], slots: int, deadline_s: float, client: Any, *, shared: bool = True
) -> list[WorkflowTrace]:
    async def batch() -> list[WorkflowTrace]:
        scheduler = Scheduler() if shared else None
        team = Team([worker(slots)], client, execution=Execution(deadline_s=deadline_s))
        runs = (execute(w, QUESTION, team, sample=n, scheduler=scheduler) for n, w in enumerate(workflows))
        return await asyncio.gather(*runs)

    return run_virtually(batch())


def test_256_chains_that_queue_for_32_slots_are_all_answered() -> None:
    """All chains together take 480 seconds of queueing and work, of which a single chain needs 60."""
    client = Slow()
    traces = run_all([CHAIN] * 256, 32, 120.0, client)
    assert Counter(trace.status for trace in traces) == {"answered": 256}
    assert client.paid == 3 * 256
    assert max(trace.wall_s for trace in traces) == pytest.approx(480)
    assert all(trace.wall_s == pytest.approx(trace.queued_s + 3 * CALL_S) for trace in traces)


def test_own_work_beyond_the_deadline_still_times_out() -> None:
    traces = run_all([CHAIN] * 8, 2, 59.0, Slow())
    assert {trace.status for trace in traces} == {"timed_out"}
    assert all([step.status for step in trace.steps] == ["ok", "ok", "timed_out"] for trace in traces)
    assert "deadline" in traces[0].error


def test_steps_side_by_side_count_once_and_not_more_for_having_one_slot() -> None:
    """The longest chain is "a" and "end"; the three steps share a slot only because of the pool's limit."""
    workflow = Workflow((Step(0, "a"), Step(0, "b"), Step(0, "c"), Step(0, "end", "all")))
    [trace] = run_all([workflow], 1, 41.0, Slow())
    assert (trace.status, trace.answer, trace.wall_s) == ("answered", "yes", pytest.approx(80))
    [trace] = run_all([workflow], 1, 39.0, Slow())
    assert trace.status == "timed_out"
    assert [step.status for step in trace.steps] == ["ok", "ok", "ok", "timed_out"]


def test_only_the_longest_chain_counts() -> None:
    """The step "short" ends long before "long", for which the last step waits too."""
    workflow = Workflow((Step(0, "short"), Step(0, "long"), Step(0, "end", "all")))
    client = Slow(short=1.0, long=30.0, end=5.0)
    assert run_all([workflow], 9, 35.5, client)[0].status == "answered"
    assert run_all([workflow], 9, 34.5, client)[0].status == "timed_out"


@pytest.mark.parametrize("shared", [True, False], ids=["one scheduler", "no scheduler"])
def test_a_clients_reported_waiting_does_not_count(shared: bool) -> None:
    class Queue(Slow):
        """A client that applies its own limits, as `WorkerClient` does."""

        takes_turns = True

        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            async with my_turn():
                with waiting():
                    await asyncio.sleep(1000.0)
                return await super().complete(worker, messages, sample=sample)

    [trace] = run_all([CHAIN], 1, 61.0, Queue(), shared=shared)
    assert (trace.status, trace.queued_s) == ("answered", pytest.approx(3000))
    assert run_all([CHAIN], 1, 59.0, Queue(), shared=shared)[0].status == "timed_out"
