"""Baseline: the best fixed vote, which asks the same workers, one or several, every question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean

from ops.core.rows import ResponseRow
from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.baselines._vote import ballots, vote
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import summarize

MOST = 5
"""The largest number of workers that vote."""


@baseline("best static", place=42, usual=False)
def static_vote(answers: Answers) -> Standing:
    """Choose the workers whose vote is best on the training problems (of equals the cheaper one), and score it.

    Unlike `best_static` it tries no chain of workers, and asks nothing. Raises `ValueError` without training answers.
    """
    asked = ballots(answers.training)
    if not asked:
        raise ValueError("no responses: there is no best vote")
    names = list(dict.fromkeys(row.worker for row in answers.training))
    sets = [chosen for size in range(1, min(MOST, len(names)) + 1) for chosen in combinations(names, size)]
    best = max(sets, key=lambda chosen: _worth(_votes(asked, chosen)))
    title = " + ".join(best)
    return Standing(summarize(_votes(ballots(answers.evaluation), best)), title)


def _votes(asked: Iterable[Sequence[ResponseRow]], workers: Sequence[str]) -> list[OutcomeRow]:
    chosen = ([row for row in ballot if row.worker in workers] for ballot in asked)
    return [vote(ballot) for ballot in chosen if ballot]


def _worth(rows: Sequence[OutcomeRow]) -> tuple[float, float]:
    """Return the mean accuracy over benchmarks, and the negative price of a question."""
    summaries = summarize(rows).values()
    return fmean(each.accuracy.mean for each in summaries), -fmean(each.cost_usd for each in summaries)
