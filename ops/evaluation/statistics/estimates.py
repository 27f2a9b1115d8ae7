"""Means with their standard errors, over questions, repeats and benchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ops.evaluation.rows import OutcomeRow


class MeanEstimate(NamedTuple):
    """A mean and its standard error, both in the unit of the values; `n` values."""

    mean: float
    standard_error: float
    n: int


def mean_estimate(values: ArrayLike) -> MeanEstimate:
    """Mean ± standard error (sample deviation over √n).

    One value has no measurable spread: its standard error is NaN, as is the mean of none.
    """
    array = np.asarray(values, dtype=float)
    n = int(array.size)
    if n == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    spread = float(array.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    return MeanEstimate(float(array.mean()), spread, n)


def clustered(clusters: Sequence[Sequence[float]]) -> MeanEstimate:
    """Mean of the clusters' means ± its standard error over clusters; one cluster is one question's repeats.

    Repeats share its difficulty, so they are not independent: only
    questions count. Empty clusters are left out.
    """
    sizes = np.fromiter((len(cluster) for cluster in clusters if len(cluster)), dtype=np.intp)
    if not sizes.size:
        return mean_estimate([])
    values = np.fromiter(chain.from_iterable(clusters), dtype=float, count=int(sizes.sum()))
    return mean_estimate(np.add.reduceat(values, np.cumsum(sizes) - sizes) / sizes)


def mean_of(estimates: Sequence[MeanEstimate]) -> MeanEstimate:
    """Unweighted mean of independent estimates (benchmarks); `n` is their total number of values."""
    if not estimates:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean = float(np.mean([estimate.mean for estimate in estimates]))
    error = float(np.sqrt(np.sum([estimate.standard_error**2 for estimate in estimates])) / len(estimates))
    return MeanEstimate(mean, error, sum(estimate.n for estimate in estimates))


def question_means(rows: Iterable[OutcomeRow]) -> dict[str, dict[str, float]]:
    """Benchmark → question → its accuracy over repeats, in [0, 1]: what pairs two systems.

    Unscorable rows count as no repeat; a question without any other is left out.
    """
    repeats: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if not row.unscorable:
            repeats[row.benchmark][row.problem_id].append(row.correct)
    return {
        benchmark: {question: sum(correct) / len(correct) for question, correct in questions.items()}
        for benchmark, questions in repeats.items()
    }
