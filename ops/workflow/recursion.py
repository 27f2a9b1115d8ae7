"""Rounds: the Conductor reads what its workflow gave, and keeps that answer or writes another workflow.

Only completions are ever parsed: a response that contains a workflow stays text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ops.benchmarks.prompts import worker_prompt
from ops.config import Execution
from ops.core.problem import Problem
from ops.core.response import Message
from ops.workflow.execution import Previous, execute
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, Trace

Stop = Literal["kept", "cap", "budget", "loop", "invalid", "unreachable", "refused", "too_long", "timed_out"]
"""Why no further round followed. "kept": the Conductor returned three empty lists. "cap": the rounds allowed are
used up. "budget": the next workflow would make too many calls. "loop": it is one that was run before. "invalid": no
workflow was written. The last three: a round gave no answer. All but those and a first "invalid" leave an answer."""

Write = Callable[[list[Message]], Awaitable[str]]
WriteMany = Callable[[list[list[Message]]], Awaitable[list[str]]]


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

    def as_row(self, *, texts: bool = True) -> dict[str, Any]:
        """A JSON-ready row: one `Trace.as_row` per executed round; without `texts` no completion either."""
        rounds = [
            ({"completion": round_.text} if texts else {})
            | {"failure": str(round_.parsed.failure or "")}
            | {"trace": round_.trace.as_row(texts=texts) if round_.trace else None}
            for round_ in self.rounds
        ]
        totals = {"calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost_usd, "latency_s": self.latency_s}
        return {"stop": self.stop, **totals, **({"answer": self.answer} if texts else {}), "rounds": rounds}

@dataclass
class _Conversation:
    """One question on its way through the rounds."""

    problem: Problem
    rounds: list[Round] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def ran(self) -> list[tuple[Workflow, Trace]]:
        return [(round_.trace.workflow, round_.trace) for round_ in self.rounds if round_.trace is not None]

    def admit(self, text: str, parsed: Parsed, settings: Execution) -> Workflow | None:
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
            if made > settings.recursion.calls_ratio * _planned(ran[0][0]):
                self.stop = "budget"
        if self.stop is not None:
            self.rounds.append(Round(text, parsed))
            return None
        return workflow

    def record(self, text: str, parsed: Parsed, trace: Trace, settings: Execution) -> None:
        self.rounds.append(Round(text, parsed, trace))
        if trace.status != "answered":
            self.stop = trace.status
        elif len(self.rounds) > settings.recursion.rounds:
            self.stop = "cap"


async def recurse(
    problem: Problem, write: Write, team: Team, *, sample: int = 0, scheduler: Scheduler | None = None
) -> RecursiveTrace:
    """`recurse_many` for one problem, with a `write` that takes one prompt."""

    async def write_many(prompts: list[list[Message]]) -> list[str]:
        return [await write(prompt) for prompt in prompts]

    [trace] = await recurse_many([problem], write_many, team, sample=sample, scheduler=scheduler)
    return trace


async def recurse_many(
    problems: Sequence[Problem],
    write: WriteMany,
    team: Team,
    *,
    sample: int = 0,
    scheduler: Scheduler | None = None,
) -> list[RecursiveTrace]:
    """Let the Conductor work in rounds on every problem; one `RecursiveTrace` each, in their order.

    All prompts of a round are written at once (a batch for the policy), and its workflows run together.
    `team.execution` bounds each execution, and its `recursion` the rounds and the calls. Raises `OverBudget`
    and `ConfigError` as the client does, once the calls in flight have ended.
    """
    settings, scheduler = team.execution, scheduler or Scheduler()
    talks = [_Conversation(problem) for problem in problems]

    def prompt(talk: _Conversation) -> list[Message]:
        if not talk.ran:
            return team.messages(talk.problem)
        return team.messages_again(talk.problem, talk.rounds[-1].text, talk.ran[-1][1].answer or "")

    async def run(talk: _Conversation, text: str) -> None:
        parsed = team.read(text, recursive=bool(talk.ran))
        workflow = talk.admit(text, parsed, settings)
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
        talk.record(text, parsed, trace, settings)

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
