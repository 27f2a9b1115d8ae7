"""Rounds: the Conductor reads what its workflow gave, and keeps that answer or writes another workflow.

Only completions are ever parsed: a response that contains a workflow stays text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ops.benchmarks.prompts import worker_prompt
from ops.core.problem import Problem
from ops.core.response import Message
from ops.workflow.carry import carried
from ops.workflow.execution import Previous, execute
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.prompt import recursive_messages
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, Trace

Stop = Literal["kept", "cap", "budget", "loop", "invalid", "unreachable", "refused", "too_long", "timed_out"]
"""Why no further round followed. "kept": the Conductor returned three empty lists. "cap": the rounds allowed are
used up. "budget": the next workflow would make too many calls. "loop": it is one that was run before. "invalid": no
workflow was written. The last three: a round gave no answer. All but those and a first "invalid" leave an answer."""

Write = Callable[[list[list[Message]]], Awaitable[list[str]]]


@dataclass(frozen=True)
class RoundLimits:
    """What bounds the rounds of one question (Section 3.2 of arXiv:2512.04388)."""

    rounds: int = 1
    """At most so many after the first; 0: none."""
    calls_ratio: float = 2.0
    """All rounds together may make at most so many times the first round's calls."""
    answer_tokens: int | None = None
    """Longest final response, in tokens, that the Conductor is shown; longer ones lose their middle. None: whole."""


@dataclass(frozen=True)
class Round:
    """One completion, what it says, and what running it gave; `trace` is None when it was not run."""

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
    def traces(self) -> tuple[Trace, ...]:
        """The executions, in the order of the rounds."""
        return tuple(round_.trace for round_ in self.rounds if round_.trace is not None)

    @property
    def answer(self) -> str | None:
        return next((trace.answer for trace in reversed(self.traces) if trace.answer is not None), None)

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


@dataclass
class _Conversation:
    """One question on its way through the rounds."""

    problem: Problem
    rounds: list[Round] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def ran(self) -> list[tuple[Workflow, Trace]]:
        return [(round_.trace.workflow, round_.trace) for round_ in self.rounds if round_.trace is not None]

    def admit(self, text: str, parsed: Parsed, limits: RoundLimits) -> Workflow | None:
        """The workflow to run now; None, with the reason in `stop`, when there is none."""
        workflow, ran = parsed.workflow, self.ran
        if workflow is None:
            self.stop = "invalid"
        elif workflow.is_empty:
            self.stop = "kept"
        elif any(workflow == earlier for earlier, _ in ran):
            self.stop = "loop"
        elif ran:
            made = sum(_planned(earlier) for earlier, _ in ran) + _planned(workflow)
            if made > limits.calls_ratio * _planned(ran[0][0]):
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
    limits: RoundLimits = RoundLimits(),
    *,
    sample: int = 0,
    scheduler: Scheduler | None = None,
) -> list[RecursiveTrace]:
    """Let the Conductor work in rounds on every problem; one `RecursiveTrace` each, in their order.

    All prompts of a round are written at once (a batch for the policy), and its workflows run together.
    `team.execution` bounds each execution, `limits` the rounds and the calls. Raises `OverBudget`
    and `ConfigError` as the client does, once the calls in flight have ended.
    """
    scheduler = scheduler or Scheduler()
    talks = [_Conversation(problem) for problem in problems]

    def prompt(talk: _Conversation) -> list[Message]:
        first = team.messages(talk.problem)
        if not talk.ran:
            return first
        answer = carried(talk.ran[-1][1].answer or "", limits.answer_tokens).text
        return recursive_messages(first, talk.rounds[-1].text, answer, style=team.prompting.style)

    async def run(talk: _Conversation, text: str) -> None:
        parsed = team.read(text, recursive=bool(talk.ran))
        workflow = talk.admit(text, parsed, limits)
        if workflow is None:
            return
        trace = await execute(
            workflow,
            worker_prompt(talk.problem),
            team,
            sample=sample,
            scheduler=scheduler,
            previous=_ending(talk.ran[-1]) if talk.ran else None,
        )
        talk.record(text, parsed, trace, limits)

    while going := [talk for talk in talks if talk.stop is None]:
        texts = await write([prompt(talk) for talk in going])
        running = [run(talk, text) for talk, text in zip(going, texts, strict=True)]
        for error in await asyncio.gather(*running, return_exceptions=True):
            if error is not None:
                raise error
    return [RecursiveTrace(tuple(talk.rounds), talk.stop) for talk in talks if talk.stop is not None]


def _planned(workflow: Workflow) -> int:
    """The calls that running it makes."""
    return len(workflow.needed())


def _ending(ran: tuple[Workflow, Trace]) -> Previous:
    workflow, trace = ran
    return Previous(workflow.steps[-1].subtask, trace.answer or "")
