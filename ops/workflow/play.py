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
from ops.workflow.execution import PreviousRound, execute_workflow, truncate_middle
from ops.workflow.grammar import ParseResult, Workflow
from ops.workflow.prompt import build_recursive_messages
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace, Round, StepTrace, StopReason, WorkflowTrace

WriteCompletions = Callable[[list[list[Message]]], Awaitable[list[str]]]
HasRoom = Callable[[Sequence[Message]], bool]


class CallBudget:
    """Call budget of a set of questions: the calls of all rounds stay within `ratio` times those of first rounds.
    Threads may share one."""

    def __init__(self, ratio: float) -> None:
        self._ratio, self._first_round_calls, self._reserved_calls, self._lock = ratio, 0, 0, Lock()

    def count_first_round(self, calls: int) -> None:
        """Count a first round."""
        with self._lock:
            self._first_round_calls += calls
            self._reserved_calls += calls

    def try_reserve(self, calls: int) -> bool:
        """Count a later round if enough calls are left for it."""
        with self._lock:
            allowed = self._reserved_calls + calls <= self._ratio * self._first_round_calls
            self._reserved_calls += calls if allowed else 0
            return allowed


@dataclass(frozen=True)
class Question:
    """A problem to play, with the known facts of its first completion."""

    problem: Problem
    team: Team
    sample: int | Sample = 0
    """The sample index of the workers' answers."""
    completion: str | None = None
    """The first completion, if it exists already."""
    parsed: ParseResult | None = None
    """The parse of `completion`, if the team does not parse it: a workflow of any length, or the reason why there is
    none."""
    previous_round: Round | None = None
    """The executed round that the first completion continues."""


class _Conversation:
    """One question on its way through the rounds."""

    def __init__(self, question: Question, limits: RoundLimits | None) -> None:
        self.problem, self.team, self.sample = question.problem, question.team, question.sample
        self._question, self._limits = question, limits
        self.rounds = [] if question.previous_round is None else [question.previous_round]
        self.stop_reason: StopReason | None = None
        self.known_completion = question.completion

    @property
    def previous_ending(self) -> PreviousRound | None:
        """Return what the next execution shows of the last one."""
        return None if self.last_execution is None else summarize_round(self.last_execution)

    @property
    def last_execution(self) -> WorkflowTrace | None:
        """Return the last execution."""
        return self.rounds[-1].trace if self.rounds else None

    def build_prompt(self) -> list[Message]:
        """Return the chat for the next completion."""
        if not self.rounds:
            return self.team.build_messages(self.problem)
        answer = (self.last_execution and self.last_execution.answer) or ""
        return build_next_round_messages(
            self.team, self.problem, self.rounds[-1].text, answer, self._limits or RoundLimits()
        )

    def parse(self, text: str) -> ParseResult:
        """Parse a completion."""
        first, self.known_completion = self.known_completion is not None, None
        if first and self._question.parsed is not None:
            return self._question.parsed
        return self.team.parse(text, recursive=bool(self.rounds))

    def admit_workflow(self, text: str, parsed: ParseResult, budget: CallBudget | None) -> Workflow | None:
        """Return the workflow to run now; None, with the reason in `stop_reason`, if there is none."""
        workflow = parsed.workflow
        if workflow is None:
            self.stop_reason = "invalid"
        elif self.rounds and workflow.is_empty:
            self.stop_reason = "kept"
        elif any(workflow == earlier.parsed.workflow for earlier in self.rounds):
            self.stop_reason = "loop"
        elif budget is not None and not self.rounds:
            budget.count_first_round(_count_calls(workflow))
        elif budget is not None and not budget.try_reserve(_count_calls(workflow)):
            self.stop_reason = "budget"
        if self.stop_reason is not None:
            self.rounds.append(Round(text, parsed))
            return None
        return workflow

    def record_execution(self, text: str, parsed: ParseResult, trace: WorkflowTrace) -> None:
        self.rounds.append(Round(text, parsed, trace))
        if trace.status != "answered":
            self.stop_reason = trace.status
        elif self._limits is None or len(self.rounds) > self._limits.rounds:
            self.stop_reason = "cap"

    def build_trace(self) -> QuestionTrace:
        assert self.stop_reason is not None
        return QuestionTrace(tuple(self.rounds), "" if self._limits is None else self.stop_reason)


async def answer_questions(
    questions: Sequence[Question],
    write: WriteCompletions | None = None,
    limits: RoundLimits | None = None,
    *,
    budget: CallBudget | None = None,
    has_room: HasRoom | None = None,
    on_step: Callable[[StepTrace | WorkflowTrace], None] | None = None,
) -> list[QuestionTrace]:
    """Answer every question as one set; one `QuestionTrace` each, in their order.

    `write` writes what a question does not bring along. `limits` bounds the rounds; None: one workflow each, and no
    rounds. All prompts of a round are written at once (a batch for the policy), and its workflows run together. The
    team's `execution` bounds each execution, `budget` the calls of rounds: one that other sets of questions share, or
    None for one of these questions alone. Where it does not last for all, chance decides, the same each time.
    `has_room` returns whether a prompt leaves room for a completion, as every first prompt must. `on_step` is given
    each step and each execution as it ends. Raises `OverBudget` and `ConfigError` as the client does, once the calls in
    flight have ended.
    """
    budget = None if limits is None else budget or CallBudget(limits.calls_ratio)
    talks = [_Conversation(question, limits) for question in questions]
    order = range(len(talks)) if limits is None else Random(0).sample(range(len(talks)), len(talks))

    while True:
        going = [index for index, talk in enumerate(talks) if talk.stop_reason is None]
        texts = {index: text for index in going if (text := talks[index].known_completion) is not None}
        asked = {index: talks[index].build_prompt() for index in going if index not in texts}
        for index in [
            i for i, messages in asked.items() if talks[i].rounds and has_room is not None and not has_room(messages)
        ]:
            talks[index].stop_reason = "no_room"
            del asked[index]
        if asked:
            assert write is not None  # needed unless the question has its completion already
            texts |= zip(asked, await write(list(asked.values())), strict=True)
        if not texts:
            break
        begun = list[tuple[_Conversation, str, ParseResult]]()
        running = []
        for index in (index for index in order if index in texts):
            talk, text = talks[index], texts[index]
            parsed = talk.parse(text)
            if (workflow := talk.admit_workflow(text, parsed, budget)) is None:
                continue
            begun.append((talk, text, parsed))
            running.append(
                execute_workflow(
                    workflow, worker_prompt(talk.problem), talk.team,
                    sample=talk.sample, previous=talk.previous_ending, on_step=on_step,
                )
            )  # fmt: skip
        # All executions are awaited before an error is raised, because calls in flight are paid for and must be cached.
        ended = await asyncio.gather(*running, return_exceptions=True)
        for (talk, text, parsed), trace in zip(begun, ended, strict=True):
            if isinstance(trace, BaseException):
                raise trace
            talk.record_execution(text, parsed, trace)
            if on_step is not None:
                on_step(trace)
    return [talk.build_trace() for talk in talks]


def build_next_round_messages(
    team: Team, problem: Problem, completion: str, answer: str, limits: RoundLimits
) -> list[Message]:
    """Return the chat of the round after the one in which the Conductor wrote `completion` and its workflow gave
    `answer`."""
    shown = truncate_middle(answer, limits.answer_tokens).text
    return build_recursive_messages(team.build_messages(problem), completion, shown, style=team.prompting.style)


def _count_calls(workflow: Workflow) -> int:
    """Return the number of calls of running it."""
    return len(workflow.needed_steps())


def summarize_round(trace: WorkflowTrace) -> PreviousRound:
    """Return the part of an execution that the prompt of the next round shows."""
    return PreviousRound(trace.workflow.steps[-1].subtask, trace.answer or "")
