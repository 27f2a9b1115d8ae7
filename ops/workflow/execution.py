"""Run a workflow as a graph: a step waits only for the steps that it sees.

What belongs here: the order of the calls, what each worker is sent (Section 3.1 of
arXiv:2512.04388) and what a failed step means for the rest. What does not: retries, caching
and money (the client's), and judging the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from ops.config import Worker
from ops.errors import PodiumError, WorkerRefused, WorkerUnreachable
from ops.workers.types import Client, Message, Response
from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepStatus, StepTrace, Trace, TraceStatus

__all__ = ["StepTrace", "Trace", "execute", "worker_messages"]

_SILENCE = Response("", 0, 0, 0.0, 0.0, "")


def worker_messages(workflow: Workflow, index: int, question: str, responses: Mapping[int, str]) -> list[Message]:
    """What step `index`'s worker is sent: visible earlier steps as past turns, its own subtask last.

    `responses` holds the response of every step that it sees. Raises `KeyError` when one is missing.
    """
    messages: list[Message] = []
    opening = f"{question}\n\n"
    for seen in workflow.visible(index):
        messages.append(_user(f"{opening}Subtask: {workflow.steps[seen].subtask}"))
        messages.append({"role": "assistant", "content": responses[seen]})
        opening = ""
    messages.append(_user(f"{opening}Subtask: {workflow.steps[index].subtask}"))
    return messages


async def execute(
    workflow: Workflow, question: str, offered: Sequence[Worker], client: Client, *, sample: int = 0
) -> Trace:
    """Run `workflow` on `question` (from `worker_prompt`) with the `offered` workers; gives a `Trace`.

    Independent steps run at the same time; steps that cannot reach the answer are not run. After
    a step has failed none is started any more, but calls in flight are let finish: they are
    paid for, and their responses are worth keeping. When calls fail both ways the workflow
    counts as refused, which no better connection would change.

    Raises `OverBudget` and `ConfigError` once the calls in flight have ended, and at once what
    only a bug can cause; `ValueError` for a workflow without steps or with a worker that is
    not offered. No task outlives the call, also when it is cancelled.
    """
    if workflow.is_empty:
        raise ValueError("a workflow without steps has no answer of its own: keep the previous one")
    if unknown := [step.worker for step in workflow.steps if step.worker >= len(offered)]:
        raise ValueError(f"worker {unknown[0]} is not among the {len(offered)} offered")
    began = time.perf_counter()
    run = _Run(workflow, question, offered, client, sample)
    await run.to_the_end()
    return run.trace(time.perf_counter() - began)


class _Run:
    """One execution's moving parts."""

    def __init__(
        self, workflow: Workflow, question: str, offered: Sequence[Worker], client: Client, sample: int
    ) -> None:
        self.workflow, self.question, self.offered = workflow, question, offered
        self.client, self.sample = client, sample
        self.needed = workflow.needed()
        self.responses: dict[int, Response] = {}
        self.failures: dict[int, tuple[Literal["unreachable", "refused"], str]] = {}
        self.stop: PodiumError | None = None
        self.settled = {index: asyncio.Event() for index in self.needed}

    async def to_the_end(self) -> None:
        first, *others = sorted(self.needed)
        try:
            if others:
                async with asyncio.TaskGroup() as group:
                    for index in (first, *others):
                        group.create_task(self._step(index))
            else:  # one call needs no task of its own
                await self._step(first)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if self.stop is not None:
            raise self.stop

    async def _step(self, index: int) -> None:
        for seen in self.workflow.visible(index):
            await self.settled[seen].wait()
        if not self.failures and self.stop is None:
            await self._ask(index)
        self.settled[index].set()

    async def _ask(self, index: int) -> None:
        texts = {seen: response.text for seen, response in self.responses.items()}
        messages = worker_messages(self.workflow, index, self.question, texts)
        worker = self.offered[self.workflow.steps[index].worker]
        try:
            self.responses[index] = await self.client.complete(worker, messages, sample=self.sample)
        except WorkerUnreachable as error:
            self.failures[index] = ("unreachable", str(error))
        except WorkerRefused as error:
            self.failures[index] = ("refused", str(error))
        except PodiumError as error:
            self.stop = self.stop or error

    def trace(self, wall_s: float) -> Trace:
        last = self.responses.get(len(self.workflow.steps) - 1)
        kinds = {kind for kind, _ in self.failures.values()}
        status: TraceStatus = "refused" if "refused" in kinds else "unreachable" if kinds else "answered"
        return Trace(
            workflow=self.workflow,
            question=self.question,
            steps=tuple(self._step_trace(index) for index in range(len(self.workflow.steps))),
            answer=last.text if last and status == "answered" else None,
            status=status,
            wall_s=wall_s,
        )

    def _step_trace(self, index: int) -> StepTrace:
        step = self.workflow.steps[index]
        status, error = self._outcome(index)
        response = self.responses.get(index, _SILENCE)
        return StepTrace(
            index=index,
            worker=self.offered[step.worker].name,
            ordinal=step.worker,
            subtask=step.subtask,
            sees=self.workflow.visible(index),
            status=status,
            response=response.text,
            prompt_tokens=response.prompt_tokens,
            completion_tokens=response.completion_tokens,
            cost_usd=response.cost_usd,
            latency_s=response.latency_s,
            cached=response.cached,
            retries=response.retries,
            finish_reason=response.finish_reason,
            error=error,
        )

    def _outcome(self, index: int) -> tuple[StepStatus, str]:
        if index in self.responses:
            return "ok", ""
        if index in self.failures:
            return self.failures[index]
        return ("not_run" if index in self.needed else "pruned"), ""


def _user(content: str) -> Message:
    return {"role": "user", "content": content}
