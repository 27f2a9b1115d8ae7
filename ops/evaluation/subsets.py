"""A Conductor on parts of its pool: which parts, what it does on each, who joins as a stranger."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from statistics import fmean

from ops.config import Evaluation, Worker
from ops.core.problem import Problem
from ops.evaluation.runner import ScoreRow, Writer, evaluate
from ops.evaluation.statistics import MeanEstimate, clustered, mean_of
from ops.workflow.cards import WorkerCard
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team

Part = tuple[int, ...]
"""The ordinals on offer."""


def parts(workers: int, per_size: int, seed: int) -> dict[int, list[Part]]:
    """Size (1 … workers - 1) → different parts of that size: `per_size` drawn by `seed`, or all that there are."""
    drawn: dict[int, list[Part]] = {}
    for size in range(1, workers):
        every = math.comb(workers, size)
        if every <= per_size:
            drawn[size] = list(combinations(range(workers), size))
            continue
        random, chosen = Random(f"{seed} {size}"), set[Part]()
        while len(chosen) < per_size:
            chosen.add(tuple(sorted(random.sample(range(workers), size))))
        drawn[size] = sorted(chosen)
    return drawn


def joined(team: Team, worker: Worker, cards: Sequence[WorkerCard] = ()) -> Team:
    """The team and one more worker, by the next ordinal; `cards`: the worker's, where the team has some.

    Raises `ValueError` where the worker is in the team, or has a card too many or too few.
    """
    if worker.name in team.names:
        raise ValueError(f"worker {worker.name!r} is in the team")
    if len(cards) != bool(team.cards):
        raise ValueError(f"{len(cards)} cards for {worker.name!r}, in a team of {len(team.cards)} cards")
    return replace(team, workers=(*team.workers, worker), cards=(*team.cards, *cards))


async def evaluate_parts(
    conductor: Writer,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    offered: Iterable[Part],
    *,
    renumbered: bool = False,
    seed: int = 0,
) -> dict[Part, list[ScoreRow]]:
    """Part → what the conductor's workflows give with only these workers on offer; raises as `evaluate` does.

    `renumbered`: as `Team.offering` has it.
    """
    return {
        part: await evaluate(conductor, problems, team.offering(part, renumbered=renumbered), settings, seed=seed)
        for part in offered
    }


async def accuracies_alone(
    problems: Sequence[Problem], team: Team, settings: Evaluation, benchmarks: Sequence[str]
) -> list[float]:
    """Each worker's accuracy alone, by ordinal: the mean over `benchmarks`. Nothing is written: cheap, and cached."""
    runs = [await evaluate(_Alone(ordinal), problems, team, settings) for ordinal in range(len(team.workers))]
    return [accuracy([rows], benchmarks).mean for rows in runs]


class _Alone:
    """A writer of one worker's workflow."""

    def __init__(self, ordinal: int) -> None:
        self._text = Workflow.single(ordinal).render()

    def write(self, prompts: Sequence[object], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        return [self._text] * len(prompts)


def accuracy(runs: Iterable[Sequence[ScoreRow]], benchmarks: Sequence[str]) -> MeanEstimate:
    """Share of right answers, the mean over benchmarks; runs (of several parts) are repeats of a question."""
    return _over(benchmarks, _right(runs))


def difference(
    ours: Iterable[Sequence[ScoreRow]], theirs: Iterable[Sequence[ScoreRow]], benchmarks: Sequence[str]
) -> MeanEstimate:
    """Our accuracy minus theirs on the questions that both have scores of, paired; the mean over benchmarks."""
    mine, other = _right(ours), _right(theirs)
    return _over(benchmarks, {key: [fmean(mine[key]) - fmean(other[key])] for key in mine if key in other})


def _right(runs: Iterable[Sequence[ScoreRow]]) -> dict[tuple[str, str], list[float]]:
    """(benchmark, problem) → right answers; unscorable rows are left out."""
    answers: dict[tuple[str, str], list[float]] = defaultdict(list)
    for rows in runs:
        for row in rows:
            if not row.unscorable:
                answers[row.benchmark, row.problem_id].append(row.correct)
    return answers


def _over(benchmarks: Sequence[str], by_question: Mapping[tuple[str, str], Sequence[float]]) -> MeanEstimate:
    return mean_of([
        clustered([values for (benchmark, _), values in by_question.items() if benchmark == name])
        for name in benchmarks
    ])  # fmt: skip
