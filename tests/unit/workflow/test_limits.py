"""The limits of an execution (deadline, length of earlier responses, memory), and the content of its record."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Sequence

import pytest

from ops.cache import cache_key
from ops.config import Execution, Worker
from ops.core.errors import WorkerRefused
from ops.core.response import Message, Response
from ops.workflow.execution import Previous, execute, messages_of, worker_messages
from ops.workflow.grammar import Step, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.unit.workflow.tools import CHAIN, QUESTION, WORKERS, Tool, failing, one_after_another, run

# ── deadline ─────────────────────────────────────────────────────────────────


async def _forever(_: str) -> None:
    await asyncio.Event().wait()


def test_at_the_deadline_calls_in_flight_are_cancelled_and_the_trace_says_so() -> None:
    workflow = Workflow((Step(0, "quick"), Step(1, "slow"), Step(2, "end", "all")))

    async def scenario() -> tuple[WorkflowTrace, Tool, int]:
        async def hook(subtask: str) -> None:
            if subtask == "slow":
                await _forever(subtask)

        client = Tool(hook)
        trace = await execute(workflow, QUESTION, Team(WORKERS, client, execution=Execution(deadline_s=0.05)))
        return trace, client, len(asyncio.all_tasks())

    trace, client, tasks = asyncio.run(scenario())
    assert (trace.status, trace.answer) == ("timed_out", None)
    assert [step.status for step in trace.steps] == ["ok", "timed_out", "not_run"]
    assert "deadline" in trace.error
    assert client.cancelled == ["slow"]
    assert tasks == 1


def test_a_refusal_outweighs_a_deadline() -> None:
    async def hook(subtask: str) -> None:
        if subtask == "a":
            raise WorkerRefused("no")
        await _forever(subtask)

    async def scenario() -> WorkflowTrace:
        workflow = Workflow((Step(1, "b"), Step(0, "a"), Step(2, "end", "all")))
        return await execute(workflow, QUESTION, Team(WORKERS, Tool(hook), execution=Execution(deadline_s=0.05)))

    assert asyncio.run(scenario()).status == "refused"


def test_a_time_out_of_the_clients_own_is_no_deadline() -> None:
    with pytest.raises(TimeoutError, match="a bug"):
        run(CHAIN, failing("b", TimeoutError("a bug")), execution=Execution(deadline_s=30))


def test_within_the_deadline_nothing_changes() -> None:
    limited = run(CHAIN, Tool(), execution=Execution(deadline_s=30))
    assert (limited.status, limited.answer) == ("answered", one_after_another(CHAIN, 0)[2])


# ── what later steps are shown ───────────────────────────────────────────────


class Talker(Tool):
    """A client with long answers."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        await super().complete(worker, messages, sample=sample)
        return Response("First. " + "and so on " * 500 + "Answer: 42", 10, 1000, 0.0, 1.0, "stop")


def test_a_long_response_is_cut_for_later_steps_and_marked_as_cut() -> None:
    client = Talker()
    trace = run(CHAIN, client, execution=Execution(carried_tokens=40))
    shown = client.calls[1][1][1]["content"]
    assert shown.startswith("First.")
    assert shown.endswith("Answer: 42")
    assert "[… cut: 40 of " in shown
    assert len(shown) < 400
    assert trace.steps[0].response.text.count("and so on") == 500  # the trace keeps the whole response
    assert trace.steps[0].cut_tokens > 900
    assert trace.answer == trace.steps[2].response.text  # and so does the answer


def test_without_a_limit_nothing_is_cut() -> None:
    client = Talker()
    trace = run(CHAIN, client)
    assert client.calls[1][1][1]["content"] == trace.steps[0].response.text
    assert trace.steps[0].cut_tokens == 0


# ── a recursive round ────────────────────────────────────────────────────────


def test_in_a_recursive_round_all_also_shows_the_previous_final_response() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b", "all"), Step(2, "c", "all")))
    client = Tool()
    run(workflow, client, previous=Previous("Solve it.", "Perhaps 41"))
    before = [
        {"role": "user", "content": f"{QUESTION}\n\nSubtask: Solve it."},
        {"role": "assistant", "content": "Perhaps 41"},
    ]
    first, second, third = (call[1] for call in client.calls)
    assert first == [{"role": "user", "content": f"{QUESTION}\n\nSubtask: a"}]
    assert second[:2] == third[:2] == before
    assert second[2] == {"role": "user", "content": "Subtask: a"}
    assert [len(messages) for messages in (second, third)] == [5, 7]


def test_a_first_step_with_access_to_all_sees_the_previous_response_alone() -> None:
    messages = worker_messages(Workflow((Step(0, "check it", "all"),)), 0, QUESTION, {}, Previous("x", "y"))
    assert [message["content"] for message in messages] == [f"{QUESTION}\n\nSubtask: x", "y", "Subtask: check it"]


# ── the record ───────────────────────────────────────────────────────────────


def test_a_step_names_its_messages_by_the_key_of_the_response_cache() -> None:
    client = Tool()
    trace = run(CHAIN, client, 3)
    wanted = [cache_key(WORKERS[int(name[1:])].identity, messages, n) for name, messages, n in client.calls]
    assert [step.key for step in trace.steps] == wanted


@pytest.mark.parametrize("limit", [None, 40])
@pytest.mark.parametrize("previous", [None, Previous("before", "so " * 300)])
def test_messages_can_be_made_again_from_the_trace(limit: int | None, previous: Previous | None) -> None:
    client = Talker()
    trace = run(CHAIN, client, execution=Execution(carried_tokens=limit), previous=previous)
    assert [messages_of(trace, index) for index in range(3)] == [call[1] for call in client.calls]


def test_steps_record_their_times() -> None:
    async def hook(subtask: str) -> None:
        await asyncio.sleep(0.03)

    before = time.time()
    trace = run(Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all"), Step(3, "d", (2,)))), Tool(hook))
    a, b, c, d = trace.steps
    assert (a.status, b.status) == ("ok", "ok")
    assert before <= trace.began <= time.time()
    assert 0 <= a.started_s < b.ended_s
    assert 0 <= b.started_s < a.ended_s  # at the same time
    assert max(a.ended_s, b.ended_s) <= c.started_s < c.ended_s <= d.started_s < d.ended_s
    assert d.ended_s <= trace.wall_s
    assert trace.critical_path in ((0, 2, 3), (1, 2, 3))


@pytest.mark.long
def test_hundreds_of_workflows_at_once_leave_nothing_behind() -> None:
    class Short:
        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
            await asyncio.sleep(0)
            return Response("x" * 200, 1, 1, 0.0, 0.0, "stop")

    scheduler, client = Scheduler(), Short()
    workflow = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))

    async def rounds(count: int) -> None:
        for _ in range(count):
            await asyncio.gather(
                *(execute(workflow, f"{QUESTION} {n}", Team(WORKERS, client), scheduler=scheduler) for n in range(300))
            )

    async def scenario() -> tuple[int, int, int]:
        await rounds(1)
        tracemalloc.start()
        await rounds(1)
        gc.collect()
        after_one, peak_of_one = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await rounds(2)
        gc.collect()
        after_three, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(asyncio.all_tasks()) == 1
        return after_three - after_one, peak, peak_of_one

    growth, peak, peak_of_one = asyncio.run(scenario())
    assert peak_of_one > 900_000  # bytes: the memory of a round
    # Two more rounds may keep a tenth of that memory, because the threads of other tests allocate as well.
    assert growth < 0.1 * 2 * peak_of_one
    assert peak < 1.5 * peak_of_one
