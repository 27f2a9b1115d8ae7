"""Rounds: the Conductor reads what its workflow gave, and keeps that answer or writes another workflow.

Only completions are ever parsed: a response that contains a workflow stays text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Any, Literal

from ops.config import RoundLimits, digest
from ops.core.problem import Problem, worker_prompt
from ops.core.response import Message
from ops.workflow.carry import carried
from ops.workflow.execution import Previous, execute
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.prompt import recursive_messages
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, StepFailure, StepTrace, Trace, TraceStatus

Stop = Literal["kept", "cap", "budget", "loop", "invalid", "no_room", "timed_out"] | StepFailure
"""Why the rounds ended. "kept": the Conductor returned three empty lists. "cap": the rounds allowed are
used up. "budget": the next workflow would make too many calls. "loop": the workflow was executed before. "invalid": no
workflow was written. "no_room": the prompt of the next round leaves no room for a completion. The others: a round gave
no answer. All but those and a first "invalid" leave an answer."""

_TOTALS = (
    "prompt_tokens", "completion_tokens", "cost_usd", "latency_s", "wall_s", "queued_s", "cached", "calls", "retries",
    "pruned",
)  # fmt: skip

Write = Callable[[list[list[Message]]], Awaitable[list[str]]]
Fits = Callable[[Sequence[Message]], bool]


class CallBudget:
    """Calls of a set of questions: those of all rounds together stay within `ratio` times those of first rounds.

    Threads may share one.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio, self._first, self._made, self._lock = ratio, 0, 0, Lock()

    def begin(self, calls: int) -> None:
        """Count a first round."""
        with self._lock:
            self._first += calls
            self._made += calls

    def take(self, calls: int) -> bool:
        """Count a later round, where there is enough left for it."""
        with self._lock:
            allowed = self._made + calls <= self._ratio * self._first
            self._made += calls if allowed else 0
            return allowed


@dataclass(frozen=True)
class Round:
    """One completion, what was parsed from it, and its execution; `trace` is None without one."""

    text: str
    parsed: Parsed
    trace: Trace | None = None


@dataclass(frozen=True)
class RecursiveTrace:
    """All rounds of one question, and why they ended.

    `answer` is that of the last round that gave one, or None when none did.
    """

    rounds: tuple[Round, ...]
    stop: Stop

    @property
    def id(self) -> str:
        """As a trace's own, of all executions; of one alone, its own."""
        ids = [trace.id for trace in self.traces]
        return ids[0] if len(ids) == 1 else digest(ids)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The executions, in the order of the rounds."""
        return tuple(round_.trace for round_ in self.rounds if round_.trace is not None)

    @property
    def answer(self) -> str | None:
        return next((trace.answer for trace in reversed(self.traces) if trace.answer is not None), None)

    @property
    def workflow(self) -> Workflow | None:
        """The one whose answer stands, or where none has one, the first that was run; None when none was."""
        answered = (trace.workflow for trace in reversed(self.traces) if trace.answer is not None)
        return next(answered, self.traces[0].workflow if self.traces else None)

    @property
    def status(self) -> TraceStatus:
        """The last execution's where it is unscorable or nothing was answered, else "answered". There must be one."""
        return self.traces[-1].status if self.unscorable or self.answer is None else "answered"

    @property
    def error(self) -> str:
        """Why there is no answer; "" when there is one."""
        return self.traces[-1].error if self.answer is None and self.traces else ""

    @property
    def unscorable(self) -> bool:
        """Whether a worker could not be reached, or was too late: what would have been answered is unknown."""
        return any(trace.status in UNSCORABLE for trace in self.traces)

    @property
    def calls(self) -> int:
        return sum(trace.calls for trace in self.traces)

    @property
    def tokens(self) -> int:
        return sum(trace.tokens for trace in self.traces)

    @property
    def cost_usd(self) -> float:
        return sum(trace.cost_usd for trace in self.traces)

    @property
    def latency_s(self) -> float:
        """Seconds of the rounds' critical paths together: a round waits for the one before."""
        return sum(trace.latency_s for trace in self.traces)

    def as_row(self, *, texts: bool = True) -> dict[str, Any]:
        """A JSON-ready row: that of the execution whose answer stands, with the totals of all, why they ended, and
        each one's own row. At least one round was run."""
        standing = next((trace for trace in reversed(self.traces) if trace.answer is not None), self.traces[0])
        rows = [trace.as_row(texts=texts) for trace in self.traces]
        totals = {name: sum(row[name] for row in rows) for name in _TOTALS}
        return standing.as_row(texts=texts) | totals | {"status": self.status, "stop": self.stop, "rounds": rows}


@dataclass
class _Conversation:
    """One question on its way through the rounds."""

    problem: Problem
    rounds: list[Round] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def ran(self) -> list[tuple[Workflow, Trace]]:
        return [(round_.trace.workflow, round_.trace) for round_ in self.rounds if round_.trace is not None]

    def admit(self, text: str, parsed: Parsed, budget: CallBudget) -> Workflow | None:
        """The workflow to run now; None, with the reason in `stop`, when there is none."""
        workflow, ran = parsed.workflow, self.ran
        if workflow is None:
            self.stop = "invalid"
        elif workflow.is_empty:
            self.stop = "kept"
        elif any(workflow == earlier for earlier, _ in ran):
            self.stop = "loop"
        elif not ran:
            budget.begin(_planned(workflow))
        elif not budget.take(_planned(workflow)):
            self.stop = "budget"
        if self.stop is not None:
            self.rounds.append(Round(text, parsed))
            return None
        return workflow

    def record(self, text: str, parsed: Parsed, trace: Trace, limits: RoundLimits) -> None:
        self.rounds.append(Round(text, parsed, trace))
        if trace.status != "answered":
            self.stop = trace.status
        elif len(self.rounds) > limits.rounds:
            self.stop = "cap"


async def recurse(
    problems: Sequence[Problem],
    write: Write,
    team: Team,
    limits: RoundLimits,
    *,
    sample: int = 0,
    scheduler: Scheduler | None = None,
    budget: CallBudget | None = None,
    fits: Fits | None = None,
    told: Callable[[StepTrace | Trace], None] | None = None,
) -> list[RecursiveTrace]:
    """Let the Conductor work in rounds on every problem; one `RecursiveTrace` each, in their order.

    All prompts of a round are written at once (a batch for the policy), and its workflows run together.
    `team.execution` bounds each execution, `limits` the rounds, `budget` the calls: one shared with other sets of
    questions, or None for these problems alone. If it is too small for all, a seeded draw decides. `fits` says whether
    a prompt leaves room for a completion (first ones must). `told` is called with each step and each execution when it
    ends. Raises `OverBudget` and `ConfigError` as the client does, once the calls in flight have ended.
    """
    scheduler, budget = scheduler or Scheduler(), budget or CallBudget(limits.calls_ratio)
    talks = [_Conversation(problem) for problem in problems]
    order = Random(0).sample(range(len(talks)), len(talks))

    def prompt(talk: _Conversation) -> list[Message]:
        if not talk.ran:
            return team.messages(talk.problem)
        return next_messages(team, talk.problem, talk.rounds[-1].text, talk.ran[-1][1].answer or "", limits)

    async def run(talk: _Conversation, text: str, parsed: Parsed, workflow: Workflow) -> None:
        trace = await execute(
            workflow,
            worker_prompt(talk.problem),
            team,
            sample=sample,
            scheduler=scheduler,
            previous=ending(talk.ran[-1][1]) if talk.ran else None,
            told=told,
        )
        if told is not None:
            told(trace)
        talk.record(text, parsed, trace, limits)

    while True:
        asked = {index: prompt(talk) for index, talk in enumerate(talks) if talk.stop is None}
        for index in [i for i, messages in asked.items() if talks[i].ran and fits is not None and not fits(messages)]:
            talks[index].stop = "no_room"
            del asked[index]
        if not asked:
            break
        texts = dict(zip(asked, await write(list(asked.values())), strict=True))
        running = []
        for index in (index for index in order if index in texts):
            talk, text = talks[index], texts[index]
            parsed = team.read(text, recursive=bool(talk.ran))
            if (workflow := talk.admit(text, parsed, budget)) is not None:
                running.append(run(talk, text, parsed, workflow))
        for error in await asyncio.gather(*running, return_exceptions=True):
            if error is not None:
                raise error
    return [RecursiveTrace(tuple(talk.rounds), talk.stop) for talk in talks if talk.stop is not None]


def next_messages(team: Team, problem: Problem, text: str, answer: str, limits: RoundLimits) -> list[Message]:
    """The chat of the round that follows the one in which the Conductor wrote `text` and its workflow gave `answer`."""
    shown = carried(answer, limits.answer_tokens).text
    return recursive_messages(team.messages(problem), text, shown, style=team.prompting.style)


def _planned(workflow: Workflow) -> int:
    """The calls that running it makes."""
    return len(workflow.needed())


def ending(trace: Trace) -> Previous:
    """What the round after this one is shown of it."""
    return Previous(trace.workflow.steps[-1].subtask, trace.answer or "")
