"""A rollout: one text of the Conductor, parsed, executed, graded and rewarded.

Training and evaluation both use `ops.workflow.answer_questions`, so that training optimises what evaluation measures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ops.core.problem import Grade, Problem
from ops.workflow.grammar import ParseResult
from ops.workflow.judging import grade_answers
from ops.workflow.literals import FormatFailure
from ops.workflow.play import Question, answer_questions
from ops.workflow.team import NO_CLIENT, Team
from ops.workflow.trace import UNSCORABLE_STATUSES, Round, WorkflowTrace

Outcome = Literal["right", "wrong", "invalid", "unscorable"]
REWARDS: dict[Outcome, float | None] = {"right": 1.0, "wrong": 0.5, "invalid": 0.0, "unscorable": None}
"""Section 3.1 of arXiv:2512.04388; "unscorable" (a worker could not be reached, or the deadline passed) is left out of
the group baseline instead of being punished."""
CUT_OFF_RESULT = ParseResult(None, FormatFailure.CUT_OFF, "the limit of tokens came before the end")


@dataclass(frozen=True)
class Rollout:
    """The outcome of one completion."""

    text: str
    parsed: ParseResult
    trace: WorkflowTrace | None
    """None if the completion is not a workflow, or keeps the answer of the previous round."""
    grade: Grade | None
    outcome: Outcome
    previous: Rollout | None = None
    """The round that a recursive rollout continues."""

    @property
    def reward(self) -> float | None:
        return REWARDS[self.outcome]

    @property
    def has_kept_answer(self) -> bool:
        """Whether the previous round's answer stands: three empty lists, or the same workflow again."""
        return self.previous is not None and self.parsed.workflow is not None and self.trace is None

    @property
    def as_round(self) -> Round:
        """The completion as the round that a later one continues."""
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
    """Execute every completion for its problem concurrently, and grade the answers.

    `texts` and `problems` correspond one to one; `team`: the workers on offer; `sample`: the sample index of the
    workers' responses, one for all or one each. `cut_off`: places of texts that reached the limit of tokens before
    their end, which count as invalid for any content. `previous`: the round with an answer that each text continues, or
    None for a first round; a text that keeps that answer is not executed and has its outcome. Raises `OverBudget` and
    `ConfigError`; an unreachable worker or a passed deadline makes a rollout unscorable instead.
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
    if made.trace.status in UNSCORABLE_STATUSES or (grade is not None and grade.unscorable):
        return replace(own, outcome="unscorable")
    return replace(own, outcome="right" if grade is not None and grade.correct else "wrong")
