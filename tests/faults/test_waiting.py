"""With the real client over real HTTP: the waits of a call do not count as its own work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ops.config import Execution
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.faults.clients import MakeClient
from tests.faults.remote import FaultServer, user

CHAIN = Workflow((Step(0, "a"), Step(0, "b", "all")))
CHAINS, DEADLINE_S = 16, 4.0


@pytest.mark.parametrize(
    ("latency_s", "limits"),
    [
        (0.25, {"concurrency": 1}),  # 32 calls, one after the other: eight seconds, of which half a second is a chain's
        (0.0, {"requests_per_minute": 240}),  # 32 calls in 7.75 s
    ],
)
def test_waiting_for_a_workers_limits_causes_no_timeout(
    server: FaultServer, make_client: MakeClient, latency_s: float, limits: dict[str, Any]
) -> None:
    client, worker = make_client(), server.worker(timeout_s=60, **limits)

    async def batch() -> list[WorkflowTrace]:
        await client.complete(worker, user("LiteLLM's first call takes its time"))
        server.order(latency_s=latency_s)
        settings = Execution(deadline_s=DEADLINE_S)
        team = Team([worker], client, execution=settings)
        runs = (execute_workflow(CHAIN, "Q", team, sample=number) for number in range(CHAINS))
        return await asyncio.gather(*runs)

    traces = asyncio.run(batch())
    assert {trace.status for trace in traces} == {"answered"}
    assert max(trace.wall_s for trace in traces) > DEADLINE_S
    assert max(trace.queued_s for trace in traces) > DEADLINE_S / 2


def test_a_pause_that_the_provider_asks_for_does_not_count_and_a_slow_answer_does(
    server: FaultServer, make_client: MakeClient
) -> None:
    client, worker = make_client(), server.worker(timeout_s=60)

    async def run(sample: int) -> WorkflowTrace:
        settings = Execution(deadline_s=1.5)
        return await execute_workflow(
            Workflow.single(0), "Q", Team([worker], client, execution=settings), sample=sample
        )

    async def night() -> tuple[WorkflowTrace, WorkflowTrace]:
        await client.complete(worker, user("LiteLLM's first call takes its time"))
        server.order(plan=["429 date", "ok", "hang"])  # two seconds from then, and thirty
        return await run(1), await run(2)

    paused, slow = asyncio.run(night())
    assert (paused.status, paused.retries) == ("answered", 1)
    assert (slow.status, slow.steps[0].status) == ("timed_out", "timed_out")
    assert client.ledger.count_in_flight("run") == 0
