"""Rounds of one question to their end, graded: what an evaluation measures of a Conductor that works in rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ops.conductor.rollout import Outcome
from ops.config import RoundLimits
from ops.core.problem import Grade, Problem
from ops.grading import grade_many
from ops.workflow.recursion import Fits, RecursiveTrace, Write, recurse
from ops.workflow.team import Team


@dataclass(frozen=True)
class RecursiveRollout:
    """What became of all completions of one question."""

    rounds: RecursiveTrace
    grade: Grade | None
    outcome: Outcome
    """The status of the final answer; "invalid": the first completion is no workflow."""

    @property
    def trace(self) -> RecursiveTrace | None:
        """The rounds, or None where nothing was executed."""
        return self.rounds if self.rounds.traces else None


async def roll_out_in_rounds(
    problems: Sequence[Problem],
    write: Write,
    team: Team,
    limits: RoundLimits,
    *,
    sample: int = 0,
    fits: Fits | None = None,
) -> list[RecursiveRollout]:
    """Let the Conductor work in rounds on every problem, as one set with one budget of calls, and grade what stands at
    the end. What is given and raised is as in `recurse`."""
    ended = await recurse(problems, write, team, limits, sample=sample, fits=fits)
    answered = [index for index, rounds in enumerate(ended) if rounds.answer is not None]
    pairs = [(problems[index], ended[index].answer or "") for index in answered]
    grades = dict(zip(answered, await asyncio.to_thread(grade_many, pairs), strict=True))
    return [
        RecursiveRollout(rounds, grades.get(index), _outcome(rounds, grades.get(index)))
        for index, rounds in enumerate(ended)
    ]


def _outcome(rounds: RecursiveTrace, grade: Grade | None) -> Outcome:
    if rounds.unscorable:
        return "unscorable"
    if not rounds.traces:
        return "invalid"
    return "right" if grade is not None and grade.correct else "wrong"
