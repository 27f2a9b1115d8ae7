"""A policy's rows on every evaluation question, and the few numbers that tables show of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.raw import evaluation_questions
from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.conductor.policy import Conductor
from ops.config import Setup
from ops.core.problem import Problem
from ops.evaluation.report import Leaderboard
from ops.evaluation.rows import ScoreRow
from ops.evaluation.runner import evaluate, summarize
from ops.precaching.opening import open_client
from ops.workflow.strategy import diversity


class Score(NamedTuple):
    """Accuracies in [0, 1], means over benchmarks trained on and unseen, and USD a question in-domain."""

    seen: float
    unseen: float
    usd: float


def questions(setup: Setup) -> list[Problem]:
    """Every evaluation question; they do not depend on the seed."""
    return [problem for each in evaluation_questions(setup.workspace, setup.recipe).values() for problem in each]


def sample(every: Sequence[Problem], per_benchmark: int | None, seed: int) -> list[Problem]:
    """So many of each benchmark, drawn by the seed; None: all."""
    if per_benchmark is None:
        return list(every)
    drawn: list[Problem] = []
    for name in dict.fromkeys(problem.benchmark for problem in every):
        own = [problem for problem in every if problem.benchmark == name]
        drawn += Random(seed).sample(own, min(per_benchmark, len(own)))
    return drawn


def read(setup: Setup, policy: Path, temperature: float = 0.0) -> list[ScoreRow]:
    """What a policy's workflows give on every question; temperature 0: greedily. Raises as `evaluate` does."""
    conductor = Conductor.load(policy)
    client = open_client(setup, "evaluation")
    team = conductor.card.team(setup.pool, setup.workspace.texts, setup.recipe.execution, client)
    settings = setup.recipe.evaluation.model_copy(update={"temperature": temperature})
    return asyncio.run(evaluate(conductor, questions(setup), team, settings, seed=setup.recipe.seed))


def score(rows: Sequence[ScoreRow]) -> Score:
    """Of one system."""
    board = Leaderboard({"it": summarize(rows)})
    seen, unseen = (board.mean("it", names()).mean for names in (training_benchmarks, unseen_benchmarks))
    return Score(seen, unseen, board.cost("it", training_benchmarks())[1])


def share(flags: Iterable[int]) -> float:
    """Of what is so, in [0, 1]; NaN of nothing."""
    values = [float(flag) for flag in flags]
    return fmean(values) if values else float("nan")


def valid(rows: Sequence[ScoreRow]) -> float:
    """Share of well-formed workflows."""
    return share(row.format_ok for row in rows)


def right_if_valid(rows: Sequence[ScoreRow]) -> float:
    """Share of right answers among those of well-formed workflows."""
    return share(row.correct for row in rows if row.format_ok)


def entropy(rows: Sequence[ScoreRow]) -> float:
    """Of the patterns, in bits."""
    return diversity(row.pattern for row in rows if row.format_ok).entropy
