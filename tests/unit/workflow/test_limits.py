"""The limits of an execution (deadline, length of earlier responses, memory), and the content of its record."""

from __future__ import annotations

import asyncio
import gc
import re
import time
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Execution, Worker
from ops.core.errors import WorkerRefused
from ops.core.messages import Message
from ops.core.response import Response
from ops.core.usage import Usage
from ops.store import cache_key
from ops.workflow.execution import PreviousRound, execute_workflow, rebuild_messages, truncate_middle
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.builders import Answering
from tests.unit.workflow.tools import CHAIN, QUESTION, WORKERS, Queued, Tool, failing, run

SIDE_BY_SIDE = Workflow((Step(0, "a"), Step(1, "b"), Step(2, "c", "all")))
LONG = "First. " + "and so on " * 500 + "Answer: 42"

# ── deadline ─────────────────────────────────────────────────────────────────


def test_at_the_deadline_calls_in_flight_are_cancelled_and_the_trace_says_so() -> None:
    async def hook(subtask: str) -> None:
        if subtask == "b":
            await asyncio.Event().wait()

    async def scenario() -> tuple[WorkflowTrace, int]:
        team = Team(WORKERS, client, execution=Execution(deadline_s=0.05))
        return await execute_workflow(SIDE_BY_SIDE, QUESTION, team), len(asyncio.all_tasks())

    client = Tool(hook)
    trace, tasks = asyncio.run(scenario())
    assert (trace.status, trace.answer) == ("timed_out", None)
    assert [step.status for step in trace.steps] == ["ok", "timed_out", "not_run"]
    assert "deadline" in trace.error
    assert client.cancelled == ["b"]
    assert tasks == 1


def test_a_refusal_outweighs_a_deadline() -> None:
    async def hook(subtask: str) -> None:
        if subtask == "b":
            raise WorkerRefused("no")
        await asyncio.Event().wait()

    assert run(SIDE_BY_SIDE, Tool(hook), execution=Execution(deadline_s=0.05)).status == "refused"


def test_a_time_out_of_the_clients_own_is_no_deadline() -> None:
    with pytest.raises(TimeoutError, match="a bug"):
        run(CHAIN, failing("b", TimeoutError("a bug")), execution=Execution(deadline_s=30))


# ── what later steps are shown ───────────────────────────────────────────────


def tokens(text: str) -> int:
    from litellm.litellm_core_utils.default_encoding import encoding

    return len(encoding.encode_ordinary(text))


@given(st.text(max_size=400), st.integers(16, 60))
@settings(max_examples=150, deadline=None)
def test_both_ends_are_kept_and_the_mark_is_true(text: str, limit: int) -> None:
    result, total = truncate_middle(text, limit), tokens(text)
    if total <= limit:
        assert result == (text, 0)
        return
    assert result.omitted_tokens == total - limit
    head, mark, tail = re.split(r"\n\[… (cut: \d+ of \d+ tokens shown)\]\n", result.text, maxsplit=1)
    assert mark == f"cut: {limit} of {total} tokens shown"
    assert text.startswith(head)
    assert text.endswith(tail)


def test_without_a_limit_or_within_it_nothing_is_cut() -> None:
    assert truncate_middle(LONG, None) == (LONG, 0)
    assert truncate_middle("short", 16) == ("short", 0)


def test_characters_are_not_cut_in_two() -> None:
    result = truncate_middle("日本語のテキスト" * 100, 17)
    assert "\ufffd" not in result.text
    assert result.omitted_tokens > 0


def test_control_tokens_are_counted_as_the_text_that_they_are() -> None:
    assert truncate_middle("<|endoftext|>" * 40, 16).omitted_tokens > 0


@pytest.mark.parametrize("limit", [None, 40])
@pytest.mark.parametrize("previous", [None, PreviousRound("before", "so " * 300)])
def test_messages_can_be_made_again_from_the_trace(limit: int | None, previous: PreviousRound | None) -> None:
    """A long response is cut for later steps, and kept whole in the trace."""
    client = Answering(LONG)
    team = Team(WORKERS, client, execution=Execution(carried_tokens=limit))
    trace = asyncio.run(execute_workflow(CHAIN, QUESTION, team, previous=previous))
    assert [rebuild_messages(trace, index) for index in range(3)] == [messages for _, messages, _ in client.asked]
    assert [step.response.text for step in trace.steps] == [LONG] * 3
    assert trace.answer == LONG
    shown = client.asked[2][1][-2]["content"]  # the second step's response
    if limit is None:
        assert (shown, trace.steps[1].cut_tokens) == (LONG, 0)
    else:
        assert shown.startswith("First.") and "[… cut: 40 of " in shown and shown.endswith("Answer: 42")
        assert len(shown) < 400
        assert trace.steps[1].cut_tokens > 900


# ── the record ───────────────────────────────────────────────────────────────


def test_a_step_names_its_messages_by_the_key_of_the_response_cache() -> None:
    client = Tool()
    trace = run(CHAIN, client, 3)
    wanted = [cache_key(WORKERS[int(name[1:])].identity, messages, n) for name, messages, n in client.calls]
    assert [step.key for step in trace.steps] == wanted


def test_steps_record_their_times() -> None:
    before = time.time()
    workflow = Workflow((*SIDE_BY_SIDE.steps, Step(3, "d", (2,))))
    trace = run(workflow, Tool(lambda _: asyncio.sleep(0.03)))
    a, b, c, d = trace.steps
    assert (a.status, b.status) == ("ok", "ok")
    assert before <= trace.started_at <= time.time()
    assert 0 <= a.started_s < b.ended_s
    assert 0 <= b.started_s < a.ended_s  # at the same time
    assert max(a.ended_s, b.ended_s) <= c.started_s < c.ended_s <= d.started_s < d.ended_s
    assert d.ended_s <= trace.wall_s
    assert trace.critical_path in ((0, 2, 3), (1, 2, 3))


@pytest.mark.long
def test_hundreds_of_workflows_at_once_leave_nothing_behind() -> None:
    class Short:
        async def complete(
            self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object
        ) -> Response:
            await asyncio.sleep(0)
            return Response("x" * 200, Usage(1, 1), 0.0, 0.0, "stop")

    team = Team(WORKERS, Queued(Short()))

    async def rounds(count: int) -> None:
        for _ in range(count):
            runs = (execute_workflow(SIDE_BY_SIDE, f"{QUESTION} {n}", team) for n in range(300))
            await asyncio.gather(*runs)

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
