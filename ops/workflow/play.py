"""Play questions: for each, generate and execute a workflow; with rounds, the Conductor then keeps the answer or writes
another workflow.

Only completions are parsed: a response that contains a workflow stays text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from threading import Lock

from ops.config import RoundLimits
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.grading import worker_prompt
from ops.workflow.execution import Previous, carried, execute
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.prompt import recursive_messages
from ops.workflow.team import Team
from ops.workflow.trace import Round, StepTrace, Stop, Trace, WorkflowTrace

Write = Callable[[list[list[Message]]], Awaitable[list[str]]]
Fits = Callable[[Sequence[Message]], bool]


class CallBudget:
    """Call budget of a set of questions: the calls of all rounds stay within `ratio` times those of first rounds.
    Threads may share one."""

    def __init__(self, ratio: float) -> None:
        self._ratio, self._first, self._made, self._lock = ratio, 0, 0, Lock()

    def begin(self, calls: int) -> None:
        """Count a first round."""
        with self._lock:
            self._first += calls
            self._made += calls

    def take(self, calls: int) -> bool:
        """Count a later round if enough calls are left for it."""
        with self._lock:
            allowed = self._made + calls <= self._ratio * self._first
            self._made += calls if allowed else 0
            return allowed


@dataclass(frozen=True)
class Question:
    """A problem to play, with the known facts of its first completion."""

    problem: Problem
    team: Team
    sample: int | Sample = 0
    """The sample index of the workers' answers."""
    text: str | None = None
    """The first completion, if it exists already."""
    parsed: Parsed | None = None
    """The parse of `text`, if the team does not parse it: a workflow of any length, or the reason why there is none."""
    before: Round | None = None
    """The executed round that the first completion continues."""


class _Conversation:
    """One question on its way through the rounds."""

    def __init__(self, question: Question, limits: RoundLimits | None) -> None:
        self.problem, self.team, self.sample = question.problem, question.team, question.sample
        self._question, self._limits = question, limits
        self.rounds = [] if question.before is None else [question.before]
        self.stop: Stop | None = None
        self.given = question.text

    @property
    def previous(self) -> Previous | None:
        """Return what the next execution shows of the last one."""
        return None if self.last is None else ending(self.last)

    @property
    def last(self) -> WorkflowTrace | None:
        """Return the last execution."""
        return self.rounds[-1].trace if self.rounds else None

    def prompt(self) -> list[Message]:
        """Return the chat for the next completion."""
        if not self.rounds:
            return self.team.messages(self.problem)
        answer = (self.last and self.last.answer) or ""
        return next_messages(self.team, self.problem, self.rounds[-1].text, answer, self._limits or RoundLimits())

    def read(self, text: str) -> Parsed:
        """Parse a completion."""
        first, self.given = self.given is not None, None
        if first and self._question.parsed is not None:
            return self._question.parsed
        return self.team.read(text, recursive=bool(self.rounds))

    def admit(self, text: str, parsed: Parsed, budget: CallBudget | None) -> Workflow | None:
        """Return the workflow to run now; None, with the reason in `stop`, if there is none."""
        workflow = parsed.workflow
        if workflow is None:
            self.stop = "invalid"
        elif self.rounds and workflow.is_empty:
            self.stop = "kept"
        elif any(workflow == earlier.parsed.workflow for earlier in self.rounds):
            self.stop = "loop"
        elif budget is not None and not self.rounds:
            budget.begin(_planned(workflow))
        elif budget is not None and not budget.take(_planned(workflow)):
            self.stop = "budget"
        if self.stop is not None:
            self.rounds.append(Round(text, parsed))
            return None
        return workflow

    def record(self, text: str, parsed: Parsed, trace: WorkflowTrace) -> None:
        self.rounds.append(Round(text, parsed, trace))
        if trace.status != "answered":
            self.stop = trace.status
        elif self._limits is None or len(self.rounds) > self._limits.rounds:
            self.stop = "cap"

    def trace(self) -> Trace:
        assert self.stop is not None
        return Trace(tuple(self.rounds), "" if self._limits is None else self.stop)


async def play(
    questions: Sequence[Question],
    write: Write | None = None,
    limits: RoundLimits | None = None,
    *,
    budget: CallBudget | None = None,
    fits: Fits | None = None,
    on_step: Callable[[StepTrace | WorkflowTrace], None] | None = None,
) -> list[Trace]:
    """Answer every question as one set; one `Trace` each, in their order.

    `write` writes what a question does not bring along. `limits` bounds the rounds; None: one workflow each, and no
    rounds. All prompts of a round are written at once (a batch for the policy), and its workflows run together. The
    team's `execution` bounds each execution, `budget` the calls of rounds: one that other sets of questions
    share, or None for one of these questions alone. Where it does not last for all, chance decides, the same each time.
    `fits` says whether a prompt leaves room for a completion (first ones must). `on_step` is given each
    step and each execution as it ends. Raises `OverBudget` and `ConfigError` as the client does, once the calls in
    flight have ended.
    """
    budget = None if limits is None else budget or CallBudget(limits.calls_ratio)
    talks = [_Conversation(question, limits) for question in questions]
    order = range(len(talks)) if limits is None else Random(0).sample(range(len(talks)), len(talks))

    while True:
        going = [index for index, talk in enumerate(talks) if talk.stop is None]
        texts = {index: text for index in going if (text := talks[index].given) is not None}
        asked = {index: talks[index].prompt() for index in going if index not in texts}
        for index in [
            i for i, messages in asked.items() if talks[i].rounds and fits is not None and not fits(messages)
        ]:
            talks[index].stop = "no_room"
            del asked[index]
        if asked:
            assert write is not None  # needed unless the question has its completion already
            texts |= zip(asked, await write(list(asked.values())), strict=True)
        if not texts:
            break
        begun = list[tuple[_Conversation, str, Parsed]]()
        running = []
        for index in (index for index in order if index in texts):
            talk, text = talks[index], texts[index]
            parsed = talk.read(text)
            if (workflow := talk.admit(text, parsed, budget)) is None:
                continue
            begun.append((talk, text, parsed))
            running.append(
                execute(
                    workflow, worker_prompt(talk.problem), talk.team,
                    sample=talk.sample, previous=talk.previous, on_step=on_step,
                )
            )  # fmt: skip
        # All executions are awaited before an error is raised, because calls in flight are paid for and must be cached.
        ended = await asyncio.gather(*running, return_exceptions=True)
        for (talk, text, parsed), trace in zip(begun, ended, strict=True):
            if isinstance(trace, BaseException):
                raise trace
            talk.record(text, parsed, trace)
            if on_step is not None:
                on_step(trace)
    return [talk.trace() for talk in talks]


def next_messages(team: Team, problem: Problem, text: str, answer: str, limits: RoundLimits) -> list[Message]:
    """Return the chat of the round after the one in which the Conductor wrote `text` and its workflow gave `answer`."""
    shown = carried(answer, limits.answer_tokens).text
    return recursive_messages(team.messages(problem), text, shown, style=team.prompting.style)


def _planned(workflow: Workflow) -> int:
    """Return the number of calls of running it."""
    return len(workflow.needed())


def ending(trace: WorkflowTrace) -> Previous:
    """Return the part of it that the next round shows."""
    return Previous(trace.workflow.steps[-1].subtask, trace.answer or "")
