"""A deadline limits the work along a workflow's longest chain of steps, measured with a test clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ops.config import Execution, Worker
from ops.core.response import Message, Response
from ops.workers.scheduling import my_turn, waiting
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.unit.workflow.tools import QUESTION
from tests.unit.workflow.virtual import run_virtually

CALL_S = 20.0
CHAIN = Workflow((Step(0, "a"), Step(0, "b", "all"), Step(0, "c", "all")))


def worker(slots: int) -> Worker:
    return Worker(name="w", model="openai/w", concurrency=slots)


class Slow:
    """A client whose calls take `CALL_S`, or the seconds given for their subtask."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.paid = 0

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        self.paid += 1
        await asyncio.sleep(self.seconds.get(messages[-1]["content"].rpartition("Subtask: ")[2], CALL_S))
        return Response("yes", 1, 1, 0.0, CALL_S, "stop")


def run_all(
    workflows: Sequence[Workflow], slots: int, deadline_s: float, client: Any, *, shared: bool = True
) -> list[WorkflowTrace]:
    async def batch() -> list[WorkflowTrace]:
        scheduler = Scheduler() if shared else None
        settings = Execution(deadline_s=deadline_s)
        return await asyncio.gather(
            *(
                execute(w, QUESTION, Team([worker(slots)], client, execution=settings), sample=n, scheduler=scheduler)
                for n, w in enumerate(workflows)
            )
        )

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
    assert (trace.status, trace.wall_s) == ("answered", pytest.approx(80))
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
    class Queue:
        """A client that applies its own limits, as `WorkerClient` does."""

        takes_turns = True

        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            async with my_turn():
                with waiting():
                    await asyncio.sleep(1000.0)
                await asyncio.sleep(CALL_S)
            return Response("yes", 1, 1, 0.0, CALL_S, "stop")

    for shared in (True, False):
        [trace] = run_all([CHAIN], 1, 61.0, Queue(), shared=shared)
        assert (trace.status, trace.queued_s) == ("answered", pytest.approx(3000))
        assert run_all([CHAIN], 1, 59.0, Queue(), shared=shared)[0].status == "timed_out"
