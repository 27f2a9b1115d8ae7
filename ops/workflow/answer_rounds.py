"""Answer questions by generating and executing a workflow for each of them.

If later rounds are allowed, the Conductor reads the answer of its workflow and then either keeps it or writes another
workflow. Only the Conductor's completions are parsed. A workflow in a worker's response is treated as ordinary text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Lock

from ops.config import RoundLimits
from ops.core.messages import Message, Parameters, Sample
from ops.core.problem import Problem
from ops.core.status import Status
from ops.grading import worker_prompt
from ops.workflow.execution import PreviousRound, execute_workflow, truncate_middle
from ops.workflow.grammar import ParseResult, Workflow
from ops.workflow.prompt import build_recursive_messages
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace, Round, StepTrace, StopReason, WorkflowTrace

WriteCompletions = Callable[[list[list[Message]]], Awaitable[list[str]]]
"""A function that writes one completion for each of a batch of chats."""
HasRoom = Callable[[Sequence[Message]], bool]
"""A function that returns whether the model's context has room for a completion after this chat."""


class CallBudget:
    """Limits the number of worker calls of a set of questions.

    The calls of all rounds together are at most `ratio` times the calls of the first rounds. Several threads may share
    one budget.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio, self._first_round_calls, self._reserved_calls, self._lock = ratio, 0, 0, Lock()

    def count_first_round(self, calls: int) -> None:
        """Count the calls of a first round, which is always allowed."""
        with self._lock:
            self._first_round_calls += calls
            self._reserved_calls += calls

    def try_reserve(self, calls: int) -> bool:
        """Return whether the budget has room for a later round with this number of calls, and count them if it has."""
        with self._lock:
            allowed = self._reserved_calls + calls <= self._ratio * self._first_round_calls
            self._reserved_calls += calls if allowed else 0
            return allowed


@dataclass(frozen=True)
class Question:
    """A problem to answer, with what is already known about its first completion."""

    problem: Problem
    """The problem."""
    team: Team
    """The team of workers on offer."""
    sample: int | Sample = 0
    """The sample index of the workers' responses. Each index stands for another independent response."""
    completion: str | None = None
    """The first completion if it already exists, or None if the Conductor is to write it."""
    parsed: ParseResult | None = None
    """The result of parsing `completion`, or None if the team is to parse it. A given workflow may have any length."""
    previous_round: Round | None = None
    """The executed round that the first completion continues, or None if the question starts with a first round."""
    parameters: Parameters = field(default_factory=dict)
    """The parameters of the requests that give the answer, which are those of each workflow's last step."""


class _Conversation:
    """The state of one question while its rounds are played."""

    def __init__(self, question: Question, limits: RoundLimits | None) -> None:
        self.problem, self.team, self.sample = question.problem, question.team, question.sample
        self._question, self._limits = question, limits
        self.rounds = [] if question.previous_round is None else [question.previous_round]
        self.stop_reason: StopReason | None = None
        self.known_completion = question.completion

    @property
    def previous_ending(self) -> PreviousRound | None:
        """Return the end of the last execution, which the next one can see, or None before the first execution."""
        return None if self.last_execution is None else summarize_round(self.last_execution)

    @property
    def last_execution(self) -> WorkflowTrace | None:
        """Return the last execution, or None before the first one."""
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
        """Parse a completion, or return the parse that the question already has for its first completion."""
        first, self.known_completion = self.known_completion is not None, None
        if first and self._question.parsed is not None:
            return self._question.parsed
        return self.team.parse(text, recursive=bool(self.rounds))

    def admit_workflow(self, text: str, parsed: ParseResult, budget: CallBudget | None) -> Workflow | None:
        """Return the workflow to execute next, or None if the question ends here.

        In the second case `stop_reason` is set.
        """
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
        """Add an executed round, and set `stop_reason` if no further round may follow."""
        self.rounds.append(Round(text, parsed, trace))
        if trace.status != Status.ANSWERED:
            self.stop_reason = trace.status
        elif self._limits is None or len(self.rounds) > self._limits.rounds:
            self.stop_reason = "cap"

    def build_trace(self) -> QuestionTrace:
        """Return the trace of the question, which must have ended."""
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
    """Answer all questions together and return one `QuestionTrace` for each, in the order of the questions.

    The prompts of a round are completed in one batch, and the workflows of a round are executed at the same time. The
    settings `execution` of a question's team limit each execution.

    `write` writes the completions, except for first completions that the questions already contain. `limits` limits
    the rounds; if it is None, each question is answered by one workflow without rounds. `budget` limits the calls of
    later rounds and may be shared with other sets of questions; if it is None, these questions get a budget of their
    own. If a budget is too small for all questions, a random order with a fixed seed decides which of them get another
    round. `has_room(prompt)` returns True if the model's context has room for a completion after this prompt. It must
    be True for every first prompt. `on_step` is called with each step and each execution when it ends.

    Raises the client's `OverBudget` and `ConfigError` after the calls in flight have ended.
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
                    parameters=questions[index].parameters,
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
    """Return the chat that asks the Conductor for the next round.

    In the round before, the Conductor wrote `completion`, and the workflow in it gave `answer`. The answer is shortened
    to `limits.answer_tokens` tokens.
    """
    shown = truncate_middle(answer, limits.answer_tokens).text
    return build_recursive_messages(team.build_messages(problem), completion, shown, style=team.prompting.style)


def _count_calls(workflow: Workflow) -> int:
    """Return the number of worker calls that the execution of a workflow makes."""
    return len(workflow.needed_steps())


def summarize_round(trace: WorkflowTrace) -> PreviousRound:
    """Return the last subtask and the answer of an execution, which the workflow of the next round can see."""
    return PreviousRound(trace.workflow.steps[-1].subtask, trace.answer or "")
