"""Execute a workflow as a graph, in which a step waits only for the steps that it sees."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ops.core.errors import ContextTooLong, PodiumError, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.response import NO_RESPONSE, Response
from ops.core.status import Status
from ops.store import cache_key
from ops.workers.litellm_private import fallback_tokenizer
from ops.workers.replies import explain_missing_text
from ops.workers.scheduling import CallDurations, Turn
from ops.workflow.clock import Stopwatch
from ops.workflow.control_tokens import escape_control_tokens
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team
from ops.workflow.trace import PreviousRound, StepTrace, WorkflowTrace

__all__ = [
    "PreviousRound",
    "StepTrace",
    "WorkflowTrace",
    "build_worker_messages",
    "execute_workflow",
    "rebuild_messages",
]


def build_worker_messages(
    workflow: Workflow, index: int, question: str, responses: Mapping[int, str], previous: PreviousRound | None = None
) -> list[Message]:
    """Return the chat that the worker of step `index` is sent.

    The earlier steps that the step sees appear as past turns, and its own subtask comes last. `responses` maps the
    index of each of these steps to its response. In a recursive round, a step with access "all" also sees the end of
    the `previous` round as its first turn. Control tokens of chat templates in these texts are broken up, because the
    worker's server would interpret them. Raises `KeyError` if a response is missing.
    """
    turns = [(workflow.steps[seen].subtask, responses[seen]) for seen in workflow.visible_steps(index)]
    if previous is not None and workflow.steps[index].access == "all":
        turns.insert(0, previous)
    messages: list[Message] = []
    opening = f"{question}\n\n"
    for subtask, response in turns:
        messages.append(_user_message(f"{opening}Subtask: {subtask}"))
        messages.append({"role": "assistant", "content": escape_control_tokens(response)})
        opening = ""
    messages.append(_user_message(f"{opening}Subtask: {workflow.steps[index].subtask}"))
    return messages


def rebuild_messages(trace: WorkflowTrace, index: int) -> list[Message]:
    """Rebuild the chat that step `index` was sent from the trace.

    Raises `KeyError` if a step that it sees gave no response, so that its worker was not called.
    """
    answered = (step for step in trace.steps if step.status == Status.OK)
    shown = {step.index: truncate_middle(step.response.text, trace.carried_tokens).text for step in answered}
    return build_worker_messages(trace.workflow, index, trace.question, shown, trace.previous)


async def execute_workflow(
    workflow: Workflow,
    question: str,
    team: Team,
    *,
    sample: int | Sample = 0,
    previous: PreviousRound | None = None,
    on_step: Callable[[StepTrace], None] | None = None,
    parameters: Parameters = NO_PARAMETERS,
) -> WorkflowTrace:
    """Execute a workflow on a question with the workers of a team, and return the trace.

    `question` is the text that workers read (see `worker_prompt`). `sample` selects an independent sample of the
    workers' responses. `previous` is the end of the previous round if this is a recursive round. `on_step` is called
    with each executed step when it ends. `parameters` are those of the last step's request, because its response is the
    answer.

    Independent steps run at the same time, and steps that cannot influence the answer do not run. After a step has
    failed, no other step starts, but calls in flight finish, because they are paid for and their responses are stored.
    A step whose response is blank has failed, and no later step sees the response. If some calls fail permanently and
    others for lack of a connection, the workflow has the status of the permanent failure.

    `team.execution` limits the length of the responses that later steps see (in tokens) and the time (in seconds). When
    the longest chain of steps has worked for `deadline_s`, without the time spent in the queues of workers, the calls
    in flight are cancelled and the status is "timed_out". Each call tells the queue of its worker how much work depends
    on it, so that the queue can serve long chains first.

    Raises `ValueError` if the workflow has no steps or calls a worker that is not on offer. Raises `OverBudget` and
    `ConfigError` after the calls in flight have ended. An error that only a defect can cause is raised at once. No task
    continues after the function has ended, even if it was cancelled.
    """
    if workflow.is_empty:
        raise ValueError("a workflow without steps has no answer of its own: keep the previous one")
    if unknown := [step.worker for step in workflow.steps if step.worker not in team.ordinals]:
        raise ValueError(f"worker {unknown[0]} is not among the {len(team.ordinals)} offered")
    if previous is not None:
        previous = PreviousRound(
            previous.subtask, truncate_middle(previous.response, team.execution.carried_tokens).text
        )
    run = _Execution(workflow, question, team, Sample.of(sample), previous, on_step, parameters)
    first, *others = sorted(run.needed_steps)
    try:
        async with run.deadline:
            if others:
                async with asyncio.TaskGroup() as group:
                    for index in (first, *others):
                        group.create_task(run.run_step(index))
            else:  # one call needs no separate task
                await run.run_step(first)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    except TimeoutError:
        if not run.deadline.expired():
            raise  # a cancellation caused by a defect
        run.timed_out = True
    if run.fatal_error is not None:
        raise run.fatal_error
    return run.build_trace()


class _Span(NamedTuple):
    """The start and the end of one call in seconds since the start of the execution, and its waiting time."""

    started: float
    ended: float
    queued: float


class _Execution:
    """The state of one execution."""

    def __init__(
        self,
        workflow: Workflow,
        question: str,
        team: Team,
        sample: Sample,
        previous: PreviousRound | None,
        on_step: Callable[[StepTrace], None] | None,
        parameters: Parameters,
    ) -> None:
        self.workflow, self.question, self.team = workflow, question, team
        self.sample, self.previous, self.on_step, self.parameters = sample, previous, on_step, parameters
        self.needed_steps = workflow.needed_steps()
        self.visible_steps = [workflow.visible_steps(index) for index in range(len(workflow.steps))]
        self.responses: dict[int, Response] = {}
        self.shown: dict[int, TruncatedText] = {}
        self.failures: dict[int, tuple[Status, str]] = {}
        self.keys: dict[int, str] = {}
        self.spans: dict[int, _Span] = {}
        self.work_s: dict[int, float] = {}
        """Maps the index of a step to the seconds of work of the longest chain that ends with this step."""
        self.fatal_error: PodiumError | None = None
        self.timed_out = False
        self.ended_steps = {index: asyncio.Event() for index in self.needed_steps}
        self.deadline = asyncio.timeout(None)
        """The timeout that expires when the longest chain of steps has worked for `deadline_s`."""
        self.loop = asyncio.get_running_loop()
        self.started, self.started_at = self.loop.time(), time.time()

    async def run_step(self, index: int) -> None:
        """Call the worker of a step after the steps that it sees have ended, unless any step has failed by then."""
        for seen in self.visible_steps[index]:
            await self.ended_steps[seen].wait()
        if self.failures or self.fatal_error is not None:
            self.ended_steps[index].set()
            return
        texts = {seen: self.shown[seen].text for seen in self.visible_steps[index]}
        messages = build_worker_messages(self.workflow, index, self.question, texts, self.previous)
        parameters = self.parameters if index == len(self.workflow.steps) - 1 else NO_PARAMETERS
        worker = self.team.workers[self.workflow.steps[index].worker]
        sample = self._sample_of_step(index)
        self.keys[index] = cache_key({**worker.identity, **parameters}, messages, sample)
        started = self._elapsed()
        self.spans[index] = _Span(started, started, 0.0)
        before = max((self.work_s[seen] for seen in self.visible_steps[index]), default=0.0)
        clock = Stopwatch(before, self.team.execution.deadline_s, self._expire)
        turn = Turn(partial(self._remaining_s, index), clock.paused)
        try:
            response = await self.team.client.complete(
                worker, messages, sample=sample, turn=turn, parameters=parameters
            )
            self.responses[index] = response
            if response.is_blank:
                problem, remedy = explain_missing_text(worker, response)
                failure = response.status if response.status.is_failure else Status.EMPTY
                self.failures[index] = failure, f"{problem}. {remedy}"
            elif "response_format" in parameters and not is_json(response.text):
                problem = f"worker {worker.name!r}: the response is not the JSON asked for"
                self.failures[index] = Status.MALFORMED, problem
            else:
                self.shown[index] = truncate_middle(response.text, self.team.execution.carried_tokens)
        except WorkerUnreachable as error:
            self.failures[index] = Status.UNREACHABLE, str(error)
        except ContextTooLong as error:
            self.failures[index] = Status.TOO_LONG, str(error)
        except RequestRejected as error:
            self.failures[index] = Status.REJECTED, str(error)
        except WorkerRefused as error:
            self.failures[index] = Status.REFUSED, str(error)
        except PodiumError as error:
            self.fatal_error = self.fatal_error or error
        finally:
            clock.stop()
            self.work_s[index] = clock.work_s
            self.spans[index] = _Span(started, self._elapsed(), clock.waited_s)
        if self.on_step is not None and self._step_outcome(index)[0] != Status.NOT_RUN:
            self.on_step(self._build_step_trace(index))
        self.ended_steps[index].set()

    def _expire(self) -> None:
        self.deadline.reschedule(self.loop.time())

    def _sample_of_step(self, index: int) -> Sample:
        """Return the sample of a step.

        If an earlier step sends the same request to the same worker, the step gets another sample, and so another
        response.
        """
        steps, sees = self.workflow.steps, self.visible_steps
        same = (
            earlier
            for earlier in sorted(self.needed_steps)
            if earlier < index
            and steps[earlier].worker == steps[index].worker
            and steps[earlier].subtask == steps[index].subtask
            and sees[earlier] == sees[index]
        )
        # An equal branch is a repetition of the whole workflow, so its steps come after all steps of earlier branches.
        repetition = self.sample.repetition * len(steps) + sum(1 for _ in same)
        return replace(self.sample, repetition=repetition)

    def _remaining_s(self, index: int, durations: CallDurations) -> float:
        """Return the expected seconds of the longest path from step `index`, inclusive, to the answer."""
        longest: dict[int, float] = dict.fromkeys(self.needed_steps, 0.0)
        for step in sorted(self.needed_steps, reverse=True):
            own = longest[step] + durations.expected_s(self.team.workers[self.workflow.steps[step].worker])
            if step == index:
                return own
            for seen in self.visible_steps[step]:
                longest[seen] = max(longest[seen], own)
        raise AssertionError("only needed steps are asked")

    def _elapsed(self) -> float:
        return self.loop.time() - self.started

    # ── what happened ────────────────────────────────────────────────────────

    def build_trace(self) -> WorkflowTrace:
        """Return the trace of the ended execution."""
        last = self.responses.get(len(self.workflow.steps) - 1)
        status = self._workflow_status()
        return WorkflowTrace(
            workflow=self.workflow,
            question=self.question,
            steps=tuple(self._build_step_trace(index) for index in range(len(self.workflow.steps))),
            answer=last.text if last and status == Status.ANSWERED else None,
            status=status,
            wall_s=self._elapsed(),
            started_at=self.started_at,
            carried_tokens=self.team.execution.carried_tokens,
            previous=self.previous,
        )

    def _workflow_status(self) -> Status:
        statuses = {status for status, _ in self.failures.values()}
        if self.timed_out:
            statuses.add(Status.TIMED_OUT)
        return next((status for status in Status if status in statuses), Status.ANSWERED)

    def _build_step_trace(self, index: int) -> StepTrace:
        step = self.workflow.steps[index]
        status, error = self._step_outcome(index)
        end = self._elapsed()
        span = self.spans.get(index, _Span(end, end, 0.0))
        return StepTrace(
            index=index,
            worker=self.team.workers[step.worker].name,
            ordinal=step.worker,
            subtask=step.subtask,
            sees=self.visible_steps[index],
            status=status,
            response=self.responses.get(index, NO_RESPONSE),
            error=error,
            key=self.keys.get(index, ""),
            started_s=span.started,
            ended_s=span.ended,
            queued_s=span.queued,
            cut_tokens=self.shown[index].omitted_tokens if index in self.shown else 0,
        )

    def _step_outcome(self, index: int) -> tuple[Status, str]:
        if index in self.failures:
            return self.failures[index]
        if index in self.responses:
            return Status.OK, ""
        if index in self.keys and self.timed_out:
            return Status.TIMED_OUT, ""
        return (Status.NOT_RUN if index in self.needed_steps else Status.PRUNED), ""


def is_json(text: str) -> bool:
    """Return whether the text is one JSON document. Never raises an exception."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _user_message(content: str) -> Message:
    return {"role": "user", "content": escape_control_tokens(content)}


class TruncatedText(NamedTuple):
    """A response as later steps see it."""

    text: str
    """The response, with a mark in the place of an omitted middle."""
    omitted_tokens: int = 0
    """The number of tokens that are omitted."""


def truncate_middle(text: str, max_tokens: int | None) -> TruncatedText:
    """Shorten a text to `max_tokens` tokens by replacing its middle with a mark.

    A text within the limit, and every text if the limit is None, is returned unchanged. The end is kept because the
    answer is usually there. A character is never split. The tokenizer is tiktoken's cl100k_base for every worker,
    because the limit only bounds the length. It comes with LiteLLM, so nothing is downloaded.
    """
    if max_tokens is None or len(text.encode(errors="replace")) <= max_tokens:  # a token is at least one byte
        return TruncatedText(text)
    tokenizer = fallback_tokenizer()
    tokens = tokenizer.encode_ordinary(text)
    if len(tokens) <= max_tokens:
        return TruncatedText(text)
    whole, offsets = tokenizer.decode_with_offsets(tokens)
    head, tail = offsets[max_tokens // 2], offsets[len(tokens) - (max_tokens - max_tokens // 2)]
    mark = f"[… cut: {max_tokens} of {len(tokens)} tokens shown]"
    return TruncatedText(f"{whole[:head].rstrip()}\n{mark}\n{whole[tail:].lstrip()}", len(tokens) - max_tokens)
