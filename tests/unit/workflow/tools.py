"""Deterministic workers, random workflows, and a second, sequential interpreter for comparison."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

from hypothesis import strategies as st

from ops.config import Execution, Worker
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.core.usage import Usage
from ops.workers.queue import WorkerQueue
from ops.workers.scheduling import CallDurations, Client, Turn
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace

QUESTION = "What is 6 * 7?\nAnswer in one word."
WORKERS = tuple(Worker(name=f"w{index}", model=f"local/w{index}") for index in range(4))


def reply(worker: str, messages: Sequence[Message], sample: int) -> str:
    """Return an answer that depends on the whole input, so that two different contexts give different answers."""
    material = json.dumps([worker, list(messages), sample], sort_keys=True)
    return f"{worker} says {hashlib.sha256(material.encode()).hexdigest()[:16]}"


class Tool:
    """A client in this process: deterministic, with a hook that may wait or raise before it answers."""

    def __init__(self, hook: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.hook = hook
        self.calls: list[tuple[str, list[Message], int]] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        subtask = messages[-1]["content"].rpartition("Subtask: ")[2]
        sample = Sample.of(sample).index
        self.calls.append((worker.name, list(messages), sample))
        try:
            if self.hook:
                await self.hook(subtask)
        except asyncio.CancelledError:
            self.cancelled.append(subtask)
            raise
        self.ended.append(subtask)
        text = reply(worker.name, messages, sample)
        return Response(text, Usage(10 * len(messages), len(subtask)), 0.001, 1.0, "stop", cached=len(messages) > 1)


class Queued:
    """Another client behind the real queue of each worker."""

    def __init__(self, client: Client) -> None:
        self.client, self.durations = client, CallDurations()
        self.queues: dict[str, WorkerQueue] = {}

    def queue(self, worker: Worker) -> WorkerQueue:
        """Return the worker's queue, which measures by the clock of the event loop."""
        new = WorkerQueue(worker, durations=self.durations, clock=asyncio.get_running_loop().time)
        return self.queues.setdefault(worker.name, new)

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample, turn: Turn, **_: object
    ) -> Response:
        queue = self.queue(worker)
        place = await queue.enter("call", 0, turn)
        try:
            response = await self.client.complete(worker, messages, sample=sample)
        finally:
            queue.leave(place, 0)
        queue.record_answer(place, response.completion_tokens)
        return response


def one_after_another(workflow: Workflow, sample: int) -> dict[int, str]:
    """Execute every step in order: the literal specification, independent of the code under test."""
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


def run(
    workflow: Workflow, client: Tool, sample: int = 0, execution: Execution | None = None, **options: object
) -> WorkflowTrace:
    team = Team(WORKERS, client, execution=execution or Execution())
    return asyncio.run(execute_workflow(workflow, QUESTION, team, sample=sample, **options))  # type: ignore[arg-type]


CHAIN = Workflow((Step(0, "a"), Step(1, "b", "all"), Step(2, "c", "all")))


def failing(where: str, error: Exception) -> Tool:
    async def fail(subtask: str) -> None:
        if subtask == where:
            raise error

    return Tool(fail)
