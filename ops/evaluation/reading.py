"""The evaluation questions, and statistics of score rows that tables show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from statistics import fmean

from ops.benchmarks.store import evaluation_questions
from ops.config import Setup
from ops.core.problem import Problem
from ops.evaluation.rows import OutcomeRow
from ops.workflow.strategy import diversity


def questions(setup: Setup) -> list[Problem]:
    """Return every evaluation question; the questions do not depend on the seed."""
    return [problem for each in evaluation_questions(setup.workspace, setup.recipe).values() for problem in each]


def sample(every: Sequence[Problem], per_benchmark: int | None, seed: int) -> list[Problem]:
    """Draw at most `per_benchmark` questions of each benchmark by the seed; None returns all."""
    if per_benchmark is None:
        return list(every)
    drawn: list[Problem] = []
    for name in dict.fromkeys(problem.benchmark for problem in every):
        own = [problem for problem in every if problem.benchmark == name]
        drawn += Random(seed).sample(own, min(per_benchmark, len(own)))
    return drawn


def share(flags: Iterable[int]) -> float:
    """Return the share of true flags, in [0, 1]; NaN without flags."""
    values = [float(flag) for flag in flags]
    return fmean(values) if values else float("nan")


def valid(rows: Sequence[OutcomeRow]) -> float:
    """Return the share of well-formed workflows."""
    return share(row.format_ok for row in rows)


def right_if_valid(rows: Sequence[OutcomeRow]) -> float:
    """Return the share of right answers among the rows with well-formed workflows."""
    return share(row.correct for row in rows if row.format_ok)


def entropy(rows: Sequence[OutcomeRow]) -> float:
    """Return the entropy of the patterns of well-formed workflows, in bits."""
    return diversity(row.pattern for row in rows if row.format_ok).entropy
