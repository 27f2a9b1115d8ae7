"""Traces record what happened when a question was answered.

A `StepTrace` records one step, a `WorkflowTrace` the execution of one workflow, and a `QuestionTrace` all rounds of a
question.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self

from ops.config import digest
from ops.core.response import NO_RESPONSE, Response
from ops.core.status import Status
from ops.workflow.grammar import ParseResult, Workflow

StopReason = Literal["", "kept", "cap", "budget", "loop", "invalid", "no_room"] | Status
"""The reason why no further round followed.

- "": the question was answered by one workflow without rounds.
- "kept": the Conductor kept the previous answer by writing three empty lists.
- "cap": the allowed number of rounds was reached.
- "budget": the next workflow would have exceeded the call budget.
- "loop": the next workflow is equal to one that was already run.
- "invalid": the completion contains no valid workflow.
- "no_room": the prompt of the next round would leave no room for a completion.
- the status of the last workflow, if it gave no answer.

The question has an answer in all cases except the last one and an "invalid" first completion.
"""
_SUMMED_FIELDS = (
    "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "wall_s", "queued_s", "cached", "calls", "retries",
    "pruned",
)  # fmt: skip

_TEXT_FIELDS = ("subtask", "response", "error")
_RESPONSE_FIELDS = ("prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "cached", "retries", "finish_reason")
"""The fields of `Response`, other than its text, that are copied into the row of a step."""


class PreviousRound(NamedTuple):
    """The last step of the previous round, which the workflow of a later round can see."""

    subtask: str
    """The subtask of the last step."""
    response: str
    """The response of the last step, which is the answer of that round."""


@dataclass(frozen=True)
class StepTrace:
    """The record of one step of an executed workflow."""

    index: int
    """The position of the step in the workflow, counted from 0."""
    worker: str
    """The name of the worker."""
    ordinal: int
    """The ordinal of the worker among the workers on offer."""
    subtask: str
    """The subtask of the step."""
    sees: tuple[int, ...]
    """The indices of the earlier steps whose subtasks and responses the worker saw."""
    status: Status
    """The outcome of the step."""
    response: Response = NO_RESPONSE
    """The worker's response, or `NO_RESPONSE` if there is none."""
    error: str = ""
    """The reason for a failure in words, or "" for any other outcome."""
    key: str = ""
    """The key under which the response store holds the response, or "" if the worker was not called."""
    started_s: float = 0.0
    """The start of the call in seconds since the start of the execution. A step whose worker was not called has the end
    of the execution here and in `ended_s`."""
    ended_s: float = 0.0
    """The end of the call in seconds since the start of the execution."""
    queued_s: float = 0.0
    """The seconds of the call that were spent waiting for a slot of the worker, for its rate limit, or for an identical
    call of another workflow."""
    cut_tokens: int = 0
    """The number of tokens of the response that later steps were not shown."""

    @property
    def is_paid(self) -> bool:
        """Return whether the worker sent a response, even a blank one, so that its tokens and its cost in USD count."""
        return self.response != NO_RESPONSE

    def to_dict(self, *, include_texts: bool = True) -> dict[str, Any]:
        """Return the step and its response as a dictionary for JSON.

        If `include_texts` is False, the texts of the subtask, the response and the error are left out.
        """
        whole: dict[str, Any] = {}
        for field in fields(self):
            if field.name == "response":
                whole |= {"response": self.response.text} | {
                    name: getattr(self.response, name) for name in _RESPONSE_FIELDS
                }
            else:
                whole[field.name] = getattr(self, field.name)
        whole["sees"] = list(self.sees)
        return whole if include_texts else {name: value for name, value in whole.items() if name not in _TEXT_FIELDS}


@dataclass(frozen=True)
class WorkflowTrace:
    """The record of one execution of a workflow.

    The fields `carried_tokens` and `previous` are kept so that `execution.rebuild_messages` can rebuild the messages of
    each step.
    """

    workflow: Workflow
    """The executed workflow."""
    question: str
    """The question as the workers read it."""
    steps: tuple[StepTrace, ...]
    """The record of each step, in the order of the workflow."""
    answer: str | None
    """The response of the last step, or None unless `status` is `ANSWERED`."""
    status: Status
    """The outcome of the execution: `ANSWERED`, `TIMED_OUT` or the failure of a step."""
    wall_s: float = 0.0
    """The duration of this execution in seconds. Responses from the store make it short."""
    started_at: float = 0.0
    """The start of the execution in seconds since 1970 (Unix time)."""
    carried_tokens: int | None = None
    """The largest number of tokens of a response that later steps were shown, or None for no limit."""
    previous: PreviousRound | None = None
    """The end of the previous round that this execution could see, or None in a first round."""

    @property
    def id(self) -> str:
        """Return a hash (12 hexadecimal digits) of the requests of all steps. Equal executions have the same hash."""
        return digest([step.key for step in self.steps])

    @property
    def prompt_tokens(self) -> int:
        """Return the number of prompt tokens of all steps."""
        return sum(step.response.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        """Return the number of completion tokens of all steps."""
        return sum(step.response.completion_tokens for step in self.steps)

    @property
    def tokens(self) -> int:
        """Return the number of prompt and completion tokens of all steps."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        """Return the cost of all steps in USD. A response from the store counts with its original cost."""
        return sum(step.response.cost_usd for step in self.steps)

    @property
    def cached(self) -> int:
        """Return the number of responses that came from the store."""
        return sum(step.response.cached for step in self.steps)

    @property
    def calls(self) -> int:
        """Return the number of steps with a response, including blank ones."""
        return sum(step.is_paid for step in self.steps)

    @property
    def retries(self) -> int:
        """Return the number of failed attempts that preceded the responses of all steps."""
        return sum(step.response.retries for step in self.steps)

    @property
    def pruned(self) -> int:
        """Return the number of steps that were omitted because the answer cannot depend on them."""
        return sum(step.status == Status.PRUNED for step in self.steps)

    @property
    def queued_s(self) -> float:
        """Return the seconds that all steps together waited for the slots and rate limits of their workers."""
        return sum(step.queued_s for step in self.steps)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Return a pair of indices for each earlier step and each later step that sees it."""
        return [(seen, step.index) for step in self.steps for seen in step.sees]

    @property
    def latency_s(self) -> float:
        """Return the duration of the critical path in seconds.

        This is the time until the answer if every step starts as soon as the steps that it sees have ended.
        """
        finished: list[float] = []
        for step in self.steps:
            finished.append(max((finished[seen] for seen in step.sees), default=0.0) + step.response.latency_s)
        return max(finished, default=0.0)

    @property
    def critical_path(self) -> tuple[int, ...]:
        """Return the indices of the steps on the critical path from first to last.

        The critical path is the chain of steps with the largest total latency. It is empty if no step has a response.
        """
        finished: list[float] = []
        before: list[int | None] = []
        for step in self.steps:
            late = max(step.sees, key=lambda seen: finished[seen], default=None)
            finished.append((0.0 if late is None else finished[late]) + step.response.latency_s)
            before.append(late)
        answered = [step.index for step in self.steps if step.is_paid]
        if not answered:
            return ()
        path = [answered[-1] if self.status == Status.ANSWERED else max(answered, key=finished.__getitem__)]
        while (earlier := before[path[-1]]) is not None:
            path.append(earlier)
        return tuple(reversed(path))

    @property
    def error(self) -> str:
        """Return the reason why the workflow gave no answer, or "" if it gave one."""
        if self.status == Status.TIMED_OUT:
            return f"the deadline passed after {self.wall_s:.1f} s, waits for slots and limits included"
        errors = [step.error for step in self.steps if step.status == self.status]
        return errors[0] if errors else ""

    def to_row(self, *, include_texts: bool = True) -> dict[str, Any]:
        """Return the trace as a row for JSON with the text of the workflow, the totals and the steps.

        If `include_texts` is False, the row contains no question, subtask, response or error text. The workflow is
        then described only by the ordinals of its workers and its edges.
        """
        row: dict[str, Any] = {
            "status": self.status,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
            "latency_s": self.latency_s,
            "wall_s": self.wall_s,
            "queued_s": self.queued_s,
            "began": self.started_at,
            "cached": self.cached,
            "calls": self.calls,
            "retries": self.retries,
            "pruned": self.pruned,
            "edges": [list(edge) for edge in self.edges],
            "critical_path": list(self.critical_path),
            "steps": [step.to_dict(include_texts=include_texts) for step in self.steps],
        }
        if include_texts:
            row |= {"workflow": self.workflow.render(), "answer": self.answer, "error": self.error}
        return row


@dataclass(frozen=True)
class Round:
    """The record of one round, which consists of a completion, its parse and the execution of its workflow."""

    text: str
    """The completion that the Conductor wrote."""
    parsed: ParseResult
    """The result of parsing the completion."""
    trace: WorkflowTrace | None = None
    """The execution of the workflow, or None if it was not executed."""

    @property
    def answer(self) -> str | None:
        """Return the answer of the executed workflow, or None if there is none."""
        return None if self.trace is None else self.trace.answer


@dataclass(frozen=True)
class QuestionTrace:
    """The record of all rounds of one question."""

    rounds: tuple[Round, ...]
    """The rounds in their order; without recursion there is one."""
    stop_reason: StopReason
    """The reason why no further round followed."""

    @classmethod
    def from_execution(cls, execution: WorkflowTrace) -> Self:
        """Return the trace of a question that was answered by a single execution."""
        return cls((Round(execution.workflow.render(), ParseResult(execution.workflow), execution),), "")

    @property
    def id(self) -> str:
        """Return a hash (12 hexadecimal digits) of all executions; with one execution it is that one's `id`."""
        ids = [trace.id for trace in self.executions]
        return ids[0] if len(ids) == 1 else digest(ids)

    @property
    def executions(self) -> tuple[WorkflowTrace, ...]:
        """Return the executions of all rounds in order, without rounds that were not executed."""
        return tuple(round_.trace for round_ in self.rounds if round_.trace is not None)

    @property
    def answering_execution(self) -> WorkflowTrace | None:
        """Return the last execution that gave an answer, or None if no execution gave one."""
        return next((trace for trace in reversed(self.executions) if trace.answer is not None), None)

    @property
    def answer(self) -> str | None:
        """Return the answer of the last round that gave one, or None if no round gave an answer."""
        return None if self.answering_execution is None else self.answering_execution.answer

    @property
    def workflow(self) -> Workflow | None:
        """Return the workflow that gave the answer.

        If no workflow gave an answer, this is the first one that was executed, or None if none was executed.
        """
        shown = self.answering_execution or next(iter(self.executions), None)
        return None if shown is None else shown.workflow

    @property
    def status(self) -> Status:
        """Return the status of the last execution if the question is unscorable or has no answer, or else `ANSWERED`.

        At least one workflow must have been executed.
        """
        return self.executions[-1].status if self.is_unscorable or self.answer is None else Status.ANSWERED

    @property
    def error(self) -> str:
        """Return the reason why the question has no answer, or "" if it has one."""
        return self.executions[-1].error if self.answer is None and self.executions else ""

    @property
    def is_unscorable(self) -> bool:
        """Return whether no answer is known because a worker could not be reached or the deadline passed."""
        return not all(trace.status.is_scorable for trace in self.executions)

    @property
    def calls(self) -> int:
        """Return the number of steps with a response in all rounds."""
        return sum(trace.calls for trace in self.executions)

    @property
    def tokens(self) -> int:
        """Return the number of prompt and completion tokens of all rounds."""
        return sum(trace.tokens for trace in self.executions)

    @property
    def cost_usd(self) -> float:
        """Return the cost of all rounds in USD."""
        return sum(trace.cost_usd for trace in self.executions)

    @property
    def latency_s(self) -> float:
        """Return the total duration of the critical paths of all rounds in seconds.

        The durations are added because a round waits for the previous one.
        """
        return sum(trace.latency_s for trace in self.executions)

    def to_row(self, *, include_texts: bool = True) -> dict[str, Any]:
        """Return the trace as a row for JSON.

        It is the row of the execution that gave the answer, with the totals of all executions, the reason why the
        rounds ended, and the row of each execution. At least one workflow must have been executed.
        """
        standing = self.answering_execution or self.executions[0]
        rows = [trace.to_row(include_texts=include_texts) for trace in self.executions]
        totals = {name: sum(row[name] for row in rows) for name in _SUMMED_FIELDS}
        return (
            standing.to_row(include_texts=include_texts)
            | totals
            | {"status": self.status, "stop": self.stop_reason, "rounds": rows}
        )
