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
    """A mean and its standard error, both in the unit of the values; `n` is the number of values."""

    mean: float
    standard_error: float
    n: int


def mean_estimate(values: ArrayLike) -> MeanEstimate:
    """Return the mean and its standard error (sample standard deviation over √n).

    The standard error of a single value is NaN; without values, the mean is NaN as well.
    """
    array = np.asarray(values, dtype=float)
    n = int(array.size)
    if n == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    spread = float(array.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    return MeanEstimate(float(array.mean()), spread, n)


def clustered(clusters: Sequence[Sequence[float]]) -> MeanEstimate:
    """Return the mean of the clusters' means with its standard error; a cluster holds the repeats of one question.

    Repeats of a question are not independent, so `n` counts clusters. Empty clusters are left out.
    """
    sizes = np.fromiter((len(cluster) for cluster in clusters if len(cluster)), dtype=np.intp)
    if not sizes.size:
        return mean_estimate([])
    values = np.fromiter(chain.from_iterable(clusters), dtype=float, count=int(sizes.sum()))
    return mean_estimate(np.add.reduceat(values, np.cumsum(sizes) - sizes) / sizes)


def mean_of(estimates: Sequence[MeanEstimate]) -> MeanEstimate:
    """Return the unweighted mean of independent estimates, such as benchmarks; `n` is their total number of values."""
    if not estimates:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean = float(np.mean([estimate.mean for estimate in estimates]))
    error = float(np.sqrt(np.sum([estimate.standard_error**2 for estimate in estimates])) / len(estimates))
    return MeanEstimate(mean, error, sum(estimate.n for estimate in estimates))


def question_means(rows: Iterable[OutcomeRow]) -> dict[str, dict[str, float]]:
    """Return benchmark → question → accuracy over repeats, in [0, 1], for paired comparisons.

    Unscorable rows are ignored; questions with only unscorable rows are left out.
    """
    repeats: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if not row.unscorable:
            repeats[row.benchmark][row.problem_id].append(row.correct)
    return {
        benchmark: {question: sum(correct) / len(correct) for question, correct in questions.items()}
        for benchmark, questions in repeats.items()
    }
