"""Worker subsets: drawing subsets of a pool, adding a new worker, and the accuracy of a Conductor on them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from statistics import fmean

from ops.config import Worker
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import MeanEstimate, clustered, difference_estimate, mean_estimate, mean_of
from ops.workflow.cards import WorkerCard
from ops.workflow.team import Team

Part = tuple[int, ...]
"""A worker subset: the ordinals on offer."""


def parts(workers: int, per_size: int, seed: int) -> dict[int, list[Part]]:
    """Return size (1 … workers - 1) → distinct subsets of that size: `per_size` drawn by `seed`, or all if fewer."""
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


def named_parts(workers: Sequence[Worker], output_usd: Mapping[str, float]) -> dict[str, Part]:
    """Return name → worker subset: the workers with each tag, those without it, and the cheap half.

    Equal subsets are returned once, under the first name. `output_usd` is worker name → USD per completion token. The
    cheap half of an odd number of workers is rounded up.
    """
    every = range(len(workers))
    tags = dict.fromkeys(tag for worker in workers for tag in worker.tags)
    named = {f"{tag} only": tuple(i for i in every if tag in workers[i].tags) for tag in tags}
    named |= {f"none {tag}": tuple(i for i in every if tag not in workers[i].tags) for tag in tags}
    by_price = sorted(every, key=lambda i: output_usd[workers[i].name])
    named["the cheap half"] = tuple(sorted(by_price[: (len(workers) + 1) // 2]))
    known: dict[Part, str] = {}
    for name, part in named.items():
        if 0 < len(part) < len(workers):
            known.setdefault(part, name)
    return {name: part for part, name in known.items()}


def joined(team: Team, worker: Worker, cards: Sequence[WorkerCard] = ()) -> Team:
    """Return the team with one more worker, at the next ordinal; `cards` holds its description if the team has them.

    Raises `ValueError` if the worker is already in the team, or the number of descriptions is wrong.
    """
    if worker.name in team.names:
        raise ValueError(f"worker {worker.name!r} is in the team")
    if len(cards) != bool(team.cards):
        raise ValueError(f"{len(cards)} cards for {worker.name!r}, in a team of {len(team.cards)} cards")
    return replace(team, workers=(*team.workers, worker), cards=(*team.cards, *cards))


def accuracy(runs: Iterable[Sequence[OutcomeRow]], benchmarks: Sequence[str]) -> MeanEstimate:
    """Return the share of right answers, as the mean over benchmarks; runs on several subsets count as repeats."""
    return _over(benchmarks, _right(runs))


def difference(
    ours: Iterable[Sequence[OutcomeRow]], theirs: Iterable[Sequence[OutcomeRow]], benchmarks: Sequence[str]
) -> MeanEstimate:
    """Return our accuracy minus theirs, paired on the questions that both scored, as the mean over benchmarks."""
    mine, other = _right(ours), _right(theirs)
    shared = {key: fmean(mine[key]) - fmean(other[key]) for key in mine if key in other}
    strata = [[each for (benchmark, _), each in shared.items() if benchmark == name] for name in benchmarks]
    # A benchmark without shared questions makes the difference unknown.
    return difference_estimate(strata) if all(strata) else mean_of([mean_estimate(own) for own in strata])


def _right(runs: Iterable[Sequence[OutcomeRow]]) -> dict[tuple[str, str], list[float]]:
    """Return (benchmark, problem) → 1 or 0 for each scored answer; unscorable rows are left out."""
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
