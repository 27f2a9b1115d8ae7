"""A rollout: one text of the Conductor, read, executed, graded and rewarded.

Training and evaluation both call `roll_out`, so that what is optimised is what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from ops.core.problem import Grade, Problem, worker_prompt
from ops.grading import grade_many
from ops.workflow.execution import execute
from ops.workflow.grammar import FormatFailure, Parsed
from ops.workflow.recursion import ending
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, Trace

Outcome = Literal["right", "wrong", "invalid", "unscorable"]
REWARDS: dict[Outcome, float | None] = {"right": 1.0, "wrong": 0.5, "invalid": 0.0, "unscorable": None}
"""Section 3.1 of arXiv:2512.04388; "unscorable" (a worker could not be reached, or the deadline passed) is left out of
the group baseline instead of being punished."""
CUT_OFF = Parsed(None, FormatFailure.CUT_OFF, "the limit of tokens came before the end")


@dataclass(frozen=True)
class Rollout:
    """What became of one completion."""

    text: str
    parsed: Parsed
    trace: Trace | None
    """None when the completion is no workflow, or one that leaves the answer of the round before."""
    grade: Grade | None
    outcome: Outcome
    after: Rollout | None = None
    """The round that a recursive rollout continues."""

    @property
    def reward(self) -> float | None:
        return REWARDS[self.outcome]

    @property
    def keeps(self) -> bool:
        """Whether the round before has the last word: three empty lists, or its own workflow once more."""
        return _keeps(self.parsed, self.after)


async def roll_out(
    texts: Sequence[str],
    problems: Sequence[Problem],
    team: Team | Sequence[Team],
    *,
    sample: int | Sequence[int] = 0,
    scheduler: Scheduler | None = None,
    cut_off: Collection[int] = (),
    after: Sequence[Rollout | None] | None = None,
) -> list[Rollout]:
    """Execute every completion for its problem, all at once, and grade the answers.

    `texts` and `problems` correspond one to one; `team`: the workers on offer; `sample`: the sample index of the
    workers' responses, one for all or one each. `scheduler`: one that is shared with other batches of the same event
    loop; None: one for this batch. `cut_off`: the places of texts that reached the limit of tokens before their end;
    they count as invalid, whatever they contain. `after`: the round with an answer that each text continues, or None
    for a first round; a text that keeps that answer is not executed and has its outcome. Raises `OverBudget` and
    `ConfigError`; a worker that cannot be reached, and a deadline that passes, make a rollout unscorable instead.
    """
    shared = scheduler or Scheduler()
    teams = [team] * len(texts) if isinstance(team, Team) else team
    samples = [sample] * len(texts) if isinstance(sample, int) else sample
    before = [None] * len(texts) if after is None else after
    written = enumerate(zip(texts, teams, before, strict=True))
    parsed = [
        CUT_OFF if i in cut_off else offered.read(text, recursive=earlier is not None)
        for i, (text, offered, earlier) in written
    ]

    async def run(
        reading: Parsed, problem: Problem, offered: Team, earlier: Rollout | None, sample: int
    ) -> Trace | None:
        if reading.workflow is None or _keeps(reading, earlier):
            return None
        previous = None if earlier is None or earlier.trace is None else ending(earlier.trace)
        question = worker_prompt(problem)
        return await execute(reading.workflow, question, offered, sample=sample, scheduler=shared, previous=previous)

    running = [run(*each) for each in zip(parsed, problems, teams, before, samples, strict=True)]
    # Every execution is awaited before an error is raised: calls in flight are paid for and must be cached.
    finished = await asyncio.gather(*running, return_exceptions=True)
    traces = [_raised(trace) for trace in finished]
    answered = [i for i, trace in enumerate(traces) if trace is not None and trace.answer is not None]
    pairs = [(problems[i], traces[i].answer or "") for i in answered]  # type: ignore[union-attr]
    grades = dict(zip(answered, await asyncio.to_thread(grade_many, pairs), strict=True))
    return [
        _kept(text, reading, earlier)
        if earlier is not None and _keeps(reading, earlier)
        else Rollout(text, reading, trace, grades.get(i), _outcome(trace, grades.get(i)), earlier)
        for i, (text, reading, trace, earlier) in enumerate(zip(texts, parsed, traces, before, strict=True))
    ]


def _keeps(parsed: Parsed, after: Rollout | None) -> bool:
    workflow = parsed.workflow
    return after is not None and workflow is not None and (workflow.is_empty or workflow == after.parsed.workflow)


def _kept(text: str, parsed: Parsed, after: Rollout) -> Rollout:
    return Rollout(text, parsed, None, after.grade, after.outcome, after)


def _raised(trace: Trace | BaseException | None) -> Trace | None:
    if isinstance(trace, BaseException):
        raise trace
    return trace


def _outcome(trace: Trace | None, grade: Grade | None) -> Outcome:
    if trace is None:
        return "invalid"
    if trace.status in UNSCORABLE:
        return "unscorable"
    return "right" if grade is not None and grade.correct else "wrong"
