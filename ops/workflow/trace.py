"""What happened when a question was played: a `StepTrace` for each step, a `WorkflowTrace` for each workflow that was
executed, and a `QuestionTrace` for all rounds of the question."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, get_args

from ops.config import digest
from ops.core.response import NO_RESPONSE, Response
from ops.workflow.grammar import ParseResult, Workflow

StepFailure = Literal[
    "unreachable", "refused", "rejected", "too_long", "declined", "tool_calls", "reasoning", "empty", "malformed"
]
STEP_FAILURES: tuple[StepFailure, ...] = get_args(StepFailure)
StepStatus = Literal["ok", "pruned", "timed_out", "not_run"] | StepFailure
TraceStatus = Literal["answered", "timed_out"] | StepFailure
_WITHOUT_TEXT = ("declined", "tool_calls", "reasoning", "empty")
"""Statuses of a step whose response was paid for and has no text."""
UNSCORABLE_STATUSES: tuple[TraceStatus, ...] = ("unreachable", "timed_out")
"""Statuses in which no answer is known. Such a rollout has no reward and is left out of all averages."""

StopReason = Literal["", "kept", "cap", "budget", "loop", "invalid", "no_room", "timed_out"] | StepFailure
"""Why no further round followed. "": one workflow was asked for, and no rounds. "kept": the Conductor returned three
empty lists. "cap": the rounds allowed are used up. "budget": the next workflow would make too many calls. "loop": it
is one that was run before. "invalid": no workflow was written. "no_room": what would have to be read leaves no room
for a completion. The others: a round gave no answer. All but those and a first "invalid" leave an answer."""
_SUMMED_FIELDS = (
    "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "wall_s", "queued_s", "cached", "calls", "retries",
    "pruned",
)  # fmt: skip

_TEXT_FIELDS = ("subtask", "response", "error")
_RESPONSE_FIELDS = ("prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "cached", "retries", "finish_reason")
"""Fields of a step's row about its response, besides the text."""


class PreviousRound(NamedTuple):
    """The end of an earlier round: the last step's subtask and its response."""

    subtask: str
    response: str


@dataclass(frozen=True)
class StepTrace:
    """One step: worker, subtask, messages, response and cost.

    `index` is its place in the workflow, `ordinal` the worker's among those offered, `sees`
    the indices of the steps in its context. `status`: "ok"; "pruned" (the answer cannot
    depend on it, so it was never asked); "unreachable", "refused", "rejected" (the provider rejected the
    request), "too_long" (its messages do not fit into the worker's context), or one of four whose response was paid for
    and has no text: "declined" (the model refused to answer), "tool_calls" (it called a tool instead), "reasoning" (it
    wrote nothing but reasoning), "empty". `error` says why; "timed_out" (in flight at the deadline);
    "not_run" (another step had failed first, or the deadline passed). `key` names its messages:
    the key under which the response cache holds the answer, "" when it was not asked. `started_s` and
    `ended_s` are seconds since this execution began (its end for a step that was not asked);
    `queued_s` of them were spent waiting: for a slot of the worker, its pace, or another's identical call.
    `cut_tokens`: how many of its tokens later steps were not shown.
    """

    index: int
    worker: str
    ordinal: int
    subtask: str
    sees: tuple[int, ...]
    status: StepStatus
    response: Response = NO_RESPONSE
    error: str = ""
    key: str = ""
    started_s: float = 0.0
    ended_s: float = 0.0
    queued_s: float = 0.0
    cut_tokens: int = 0

    @property
    def is_paid(self) -> bool:
        """Return whether there is a response, even a blank one, so that its tokens and USD count."""
        return self.status == "ok" or self.status in _WITHOUT_TEXT

    def to_dict(self, *, include_texts: bool = True) -> dict[str, Any]:
        """Return the step for JSON, including its response; without `include_texts`, requests, answers and errors are
        omitted."""
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
    """One execution of `workflow` on `question` (as the workers read it).

    `answer` is the last step's response, or None unless `status` is "answered".
    "unreachable" and "timed_out" are unscorable; the other failures score as wrong:
    asked again, the workers would do the same. `wall_s` is what
    the execution took here and now, in seconds; `started_at` is when, in seconds since the epoch.
    `carried_tokens` is the limit on responses shown to later steps, `previous` what a
    recursive round was shown of the one before: with these the messages can be made again
    (`execution.messages_of`).
    """

    workflow: Workflow
    question: str
    steps: tuple[StepTrace, ...]
    answer: str | None
    status: TraceStatus
    wall_s: float = 0.0
    started_at: float = 0.0
    carried_tokens: int | None = None
    previous: PreviousRound | None = None

    @property
    def id(self) -> str:
        """Return a hash (12 hex digits) of the requests of all steps; equal executions have the same one."""
        return digest([step.key for step in self.steps])

    @property
    def prompt_tokens(self) -> int:
        return sum(step.response.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        return sum(step.response.completion_tokens for step in self.steps)

    @property
    def tokens(self) -> int:
        """Return prompt and completion tokens of all steps."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        """Return the USD, with cached responses at their original cost."""
        return sum(step.response.cost_usd for step in self.steps)

    @property
    def cached(self) -> int:
        """Return the number of cached responses."""
        return sum(step.response.cached for step in self.steps)

    @property
    def calls(self) -> int:
        """Return the number of steps with a response, including blank ones."""
        return sum(step.is_paid for step in self.steps)

    @property
    def retries(self) -> int:
        """Return the number of failed attempts before the responses, over all steps."""
        return sum(step.response.retries for step in self.steps)

    @property
    def pruned(self) -> int:
        """Return the number of steps that were omitted because the answer cannot depend on them."""
        return sum(step.status == "pruned" for step in self.steps)

    @property
    def queued_s(self) -> float:
        """Return the total seconds that steps waited for their worker's slots and limits."""
        return sum(step.queued_s for step in self.steps)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Return (earlier step, later step that reads it), both by index."""
        return [(seen, step.index) for step in self.steps for seen in step.sees]

    @property
    def latency_s(self) -> float:
        """Return the critical path: seconds until the answer if every step starts as soon as it can."""
        finished: list[float] = []
        for step in self.steps:
            finished.append(max((finished[seen] for seen in step.sees), default=0.0) + step.response.latency_s)
        return max(finished, default=0.0)

    @property
    def critical_path(self) -> tuple[int, ...]:
        """Return the indices of the steps on the critical path, first to last; () without an answer."""
        finished: list[float] = []
        before: list[int | None] = []
        for step in self.steps:
            late = max(step.sees, key=lambda seen: finished[seen], default=None)
            finished.append((0.0 if late is None else finished[late]) + step.response.latency_s)
            before.append(late)
        answered = [step.index for step in self.steps if step.is_paid]
        if not answered:
            return ()
        path = [answered[-1] if self.status == "answered" else max(answered, key=finished.__getitem__)]
        while (earlier := before[path[-1]]) is not None:
            path.append(earlier)
        return tuple(reversed(path))

    @property
    def error(self) -> str:
        """Return why there is no answer; "" if there is one."""
        if self.status == "timed_out":
            return f"the deadline passed after {self.wall_s:.1f} s, waits for slots and limits included"
        errors = [step.error for step in self.steps if step.status == self.status]
        return errors[0] if errors else ""

    def to_row(self, *, include_texts: bool = True) -> dict[str, Any]:
        """A JSON-ready row: the workflow's text, the totals and the steps.

        Without `include_texts` nothing in it is a question, a subtask, a response or an error's text,
        and the workflow is left as worker ordinals and edges.
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
    """One completion, its parse, and its execution; `trace` is None if it was not run."""

    text: str
    parsed: ParseResult
    trace: WorkflowTrace | None = None

    @property
    def answer(self) -> str | None:
        return None if self.trace is None else self.trace.answer


@dataclass(frozen=True)
class QuestionTrace:
    """All rounds of one question (one, usually), and why they ended.

    `answer` is that of the last round that gave one, or None when none did.
    """

    rounds: tuple[Round, ...]
    stop_reason: StopReason

    @classmethod
    def from_execution(cls, execution: WorkflowTrace) -> Self:
        """Return the trace of a single execution."""
        return cls((Round(execution.workflow.render(), ParseResult(execution.workflow), execution),), "")

    @property
    def id(self) -> str:
        """As a trace's own, of all executions; of one alone, its own."""
        ids = [trace.id for trace in self.executions]
        return ids[0] if len(ids) == 1 else digest(ids)

    @property
    def executions(self) -> tuple[WorkflowTrace, ...]:
        """Return the executions in the order of the rounds."""
        return tuple(round_.trace for round_ in self.rounds if round_.trace is not None)

    @property
    def answering_execution(self) -> WorkflowTrace | None:
        """Return the execution whose answer stands."""
        return next((trace for trace in reversed(self.executions) if trace.answer is not None), None)

    @property
    def answer(self) -> str | None:
        return None if self.answering_execution is None else self.answering_execution.answer

    @property
    def workflow(self) -> Workflow | None:
        """Return the workflow whose answer stands, or else the first that was run; None if none was."""
        shown = self.answering_execution or next(iter(self.executions), None)
        return None if shown is None else shown.workflow

    @property
    def status(self) -> TraceStatus:
        """Return the last execution's status if it is unscorable or nothing was answered, else "answered". There must
        be one."""
        return self.executions[-1].status if self.is_unscorable or self.answer is None else "answered"

    @property
    def error(self) -> str:
        """Return why there is no answer; "" if there is one."""
        return self.executions[-1].error if self.answer is None and self.executions else ""

    @property
    def is_unscorable(self) -> bool:
        """Return whether a worker could not be reached or was too late, so that the answer is unknown."""
        return any(trace.status in UNSCORABLE_STATUSES for trace in self.executions)

    @property
    def calls(self) -> int:
        return sum(trace.calls for trace in self.executions)

    @property
    def tokens(self) -> int:
        return sum(trace.tokens for trace in self.executions)

    @property
    def cost_usd(self) -> float:
        return sum(trace.cost_usd for trace in self.executions)

    @property
    def latency_s(self) -> float:
        """Return the seconds of the rounds' critical paths together, since a round waits for the previous one."""
        return sum(trace.latency_s for trace in self.executions)

    def to_row(self, *, include_texts: bool = True) -> dict[str, Any]:
        """A JSON-ready row: that of the execution whose answer stands, with the totals of all, why they ended, and
        each one's own row. At least one round was run."""
        standing = self.answering_execution or self.executions[0]
        rows = [trace.to_row(include_texts=include_texts) for trace in self.executions]
        totals = {name: sum(row[name] for row in rows) for name in _SUMMED_FIELDS}
        return (
            standing.to_row(include_texts=include_texts)
            | totals
            | {"status": self.status, "stop": self.stop_reason, "rounds": rows}
        )
