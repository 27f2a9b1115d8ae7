"""A busy worker takes the call of the workflow with the most remaining work. A deadline limits the work along a
workflow's longest chain of steps, and no waiting for places."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from ops.config import Execution, Worker, load_pool
from ops.core.messages import Message
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.workers.client import WorkerClient
from ops.workers.scheduling import Turn
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.faults.clients import make_client as make_client
from tests.unit.workflow.tools import QUESTION, Queued, Tool


def worker(limit: int) -> Worker:
    return Worker(name="w", model="local/none", concurrency=limit)


def test_the_first_step_of_a_long_chain_overtakes_lone_steps() -> None:
    lone = [Workflow.single(0, f"lone {number}") for number in range(3)]
    chain = Workflow((Step(0, "first"), Step(0, "second", "all"), Step(0, "third", "all")))

    async def scenario() -> list[str]:
        client = Tool(lambda _: asyncio.sleep(0.02))
        team = Team([worker(1)], Queued(client))
        await asyncio.gather(*(execute_workflow(w, "Q", team) for w in [*lone, chain]))
        return client.ended

    # Between a step's end and its successor's call, a waiting call takes the slot: "lone 1", "lone 2".
    assert asyncio.run(scenario()) == ["lone 0", "first", "lone 1", "second", "lone 2", "third"]


def test_cached_responses_wait_for_no_place(make_client: Callable[..., WorkerClient]) -> None:
    """A call that is already in flight is not repeated; a place is held only during a real call of a worker."""
    tool = load_pool(Workspace.find().config, "quickstart").worker("guesser").model_copy(update={"concurrency": 1})
    client = make_client()
    team = Team([tool], client)

    def ask(question: str) -> Coroutine[Any, Any, WorkflowTrace]:
        return execute_workflow(Workflow.single(0), question, team)

    async def scenario() -> tuple[bool, list[bool]]:
        await ask("What is 1 + 1?")
        queue = client._find_handle(tool).queue
        place = await queue.enter("another call", 0)  # the only one
        warm = await asyncio.wait_for(ask("What is 1 + 1?"), timeout=30)
        new = [asyncio.create_task(ask("What is 2 + 2?")) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert queue.waiting_calls == 1
        queue.leave(place, 0)
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

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        self.paid += 1
        await asyncio.sleep(self.seconds.get(messages[-1]["content"].rpartition("Subtask: ")[2], CALL_S))
        return Response("yes", Usage(1, 1), 0.0, CALL_S, "stop")


def run_all(workflows: Sequence[Workflow], slots: int, deadline_s: float, client: Any) -> list[WorkflowTrace]:
    async def batch() -> list[WorkflowTrace]:
        team = Team([worker(slots)], Queued(client), execution=Execution(deadline_s=deadline_s))
        return await asyncio.gather(*(execute_workflow(w, QUESTION, team, sample=n) for n, w in enumerate(workflows)))

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


def test_a_clients_reported_waiting_does_not_count() -> None:
    class Patient(Slow):
        """A client that waits for others before each call."""

        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int, turn: Turn, **_: object
        ) -> Response:
            with turn.waiting():
                await asyncio.sleep(1000.0)
            return await super().complete(worker, messages, sample=sample)

    async def run(deadline_s: float) -> WorkflowTrace:
        return await execute_workflow(
            CHAIN, QUESTION, Team([worker(1)], Patient(), execution=Execution(deadline_s=deadline_s))
        )

    trace = run_virtually(run(61.0))
    assert (trace.status, trace.queued_s) == ("answered", pytest.approx(3000))
    assert run_virtually(run(59.0)).status == "timed_out"
