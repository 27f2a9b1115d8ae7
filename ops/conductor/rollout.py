"""A rollout is one completion of the Conductor that is parsed, executed, graded and rewarded.

Training and evaluation both use `ops.workflow.answer_rounds.answer_questions`, so that training optimises what
evaluation measures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ops.core.problem import Grade, Problem
from ops.workflow.answer_rounds import Question, answer_questions
from ops.workflow.grammar import ParseResult
from ops.workflow.judging import grade_answers
from ops.workflow.literals import FormatFailure
from ops.workflow.team import NO_CLIENT, Team
from ops.workflow.trace import Round, WorkflowTrace

Outcome = Literal["right", "wrong", "invalid", "unscorable"]
"""The outcome of a rollout. "invalid" means that the completion contains no workflow, and "unscorable" that no answer
is known."""
REWARDS: dict[Outcome, float | None] = {"right": 1.0, "wrong": 0.5, "invalid": 0.0, "unscorable": None}
"""The reward of each outcome (section 3.1 of arXiv:2512.04388).

A rollout is unscorable if a worker or judge could not be reached or the deadline passed. It has no reward and is left
out of the baseline of its group, because the policy did not cause this.
"""
CUT_OFF_RESULT = ParseResult(None, FormatFailure.CUT_OFF, "the limit of tokens came before the end")
"""The parse of a completion that reached the limit of tokens before its end."""


@dataclass(frozen=True)
class Rollout:
    """One completion with its parse, its execution, the grade of its answer and its outcome."""

    text: str
    """The completion."""
    parsed: ParseResult
    """The result of parsing the completion."""
    trace: WorkflowTrace | None
    """The execution, or None if the completion is invalid or keeps the answer of the previous round."""
    grade: Grade | None
    """The grade of the answer, or None without an answer."""
    outcome: Outcome
    """The outcome, which determines the reward."""
    previous: Rollout | None = None
    """The rollout of the previous round, or None in a first round."""

    @property
    def reward(self) -> float | None:
        """Return the reward, or None if the rollout is unscorable."""
        return REWARDS[self.outcome]

    @property
    def has_kept_answer(self) -> bool:
        """Return whether the completion keeps the answer of the previous round.

        It does so by three empty lists or by a workflow that was already executed.
        """
        return self.previous is not None and self.parsed.workflow is not None and self.trace is None

    @property
    def as_round(self) -> Round:
        """Return this rollout as a round that a later round can continue."""
        return Round(self.text, self.parsed, self.trace)


async def execute_rollouts(
    texts: Sequence[str],
    problems: Sequence[Problem],
    team: Team | Sequence[Team],
    *,
    sample: int | Sequence[int] = 0,
    cut_off: Collection[int] = (),
    previous: Sequence[Rollout | None] | None = None,
) -> list[Rollout]:
    """Execute all completions concurrently, grade their answers, and return one rollout for each.

    `texts` has one completion for each of `problems`. `team` has the workers on offer and `sample` the sample index of
    their responses; each is given once for all texts or once for each text. `cut_off` contains the positions of the
    texts that reached the limit of tokens before their end; these count as invalid whatever they contain. `previous`
    has the rollout that each text continues, or None for a first round. A text that keeps the answer of the previous
    round is not executed and gets the outcome of that round.

    Raises `OverBudget` and `ConfigError`. If a worker cannot be reached or the deadline passes, no error is raised, and
    the rollout is unscorable.
    """
    teams = [team] * len(texts) if isinstance(team, Team) else team
    samples = [sample] * len(texts) if isinstance(sample, int) else sample
    before = [None] * len(texts) if previous is None else previous
    given = zip(texts, problems, teams, samples, before, strict=True)
    traces = await answer_questions(
        [
            Question(
                problem,
                offered,
                own,
                text,
                CUT_OFF_RESULT if i in cut_off else None,
                earlier.as_round if earlier else None,
            )
            for i, (text, problem, offered, own, earlier) in enumerate(given)
        ]
    )
    rounds = [trace.rounds[-1] for trace in traces]
    client = teams[0].client if teams else NO_CLIENT
    grades = await grade_answers(problems, [each.answer for each in rounds], client)
    return [_build_rollout(*each) for each in zip(rounds, grades, before, strict=True)]


def _build_rollout(made: Round, grade: Grade | None, after: Rollout | None) -> Rollout:
    own = Rollout(made.text, made.parsed, made.trace, grade, "invalid", after)
    if own.has_kept_answer and after is not None:
        return replace(own, grade=after.grade, outcome=after.outcome)
    if made.trace is None:
        return own
    if not made.trace.status.is_scorable or (grade is not None and grade.unscorable):
        return replace(own, outcome="unscorable")
    return replace(own, outcome="right" if grade is not None and grade.correct else "wrong")
