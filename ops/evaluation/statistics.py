"""Means with their uncertainty, and paired tests on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class MeanEstimate(NamedTuple):
    """A mean and its standard error, both in the unit of the values; `n` values."""

    mean: float
    standard_error: float
    n: int


class Interval(NamedTuple):
    """A mean difference and the two ends of its percentile interval."""

    mean: float
    low: float
    high: float


class McNemar(NamedTuple):
    """Discordant pairs and the exact two-sided p-value that they are as likely one way as the other."""

    gains: int
    losses: int
    p_value: float


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
    return mean_estimate([float(np.mean(cluster)) for cluster in clusters if len(cluster)])


def mean_of(estimates: Sequence[MeanEstimate]) -> MeanEstimate:
    """Unweighted mean of independent estimates (benchmarks); `n` is their total number of values."""
    if not estimates:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean = float(np.mean([estimate.mean for estimate in estimates]))
    error = float(np.sqrt(np.sum([estimate.standard_error**2 for estimate in estimates])) / len(estimates))
    return MeanEstimate(mean, error, sum(estimate.n for estimate in estimates))


def paired_bootstrap(
    strata: Sequence[ArrayLike], *, samples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Two-sided percentile interval of a mean difference; questions are resampled within each stratum.

    `strata` holds, for each benchmark, one difference per question (ours minus
    theirs); every benchmark weighs the same. Raises `ValueError` when a stratum is
    empty or there is none.
    """
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays or any(array.size == 0 for array in arrays):
        raise ValueError("a paired bootstrap needs at least one difference in every stratum")
    rng = np.random.default_rng(seed)
    draws = np.mean([_resampled_means(array, samples, rng) for array in arrays], axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(float(np.mean([array.mean() for array in arrays])), float(low), float(high))


def _resampled_means(values: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    # Differences of accuracies take few distinct values, so drawing how often each value
    # comes up is the same bootstrap as drawing indices, at a fraction of the memory.
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(values.size, counts / values.size, size=samples)
    means: NDArray[np.float64] = drawn @ distinct / values.size
    return means


def mcnemar(ours: ArrayLike, theirs: ArrayLike) -> McNemar:
    """McNemar's exact test (binomial on the discordant pairs) for two right-or-wrong vectors.

    Values of at least 0.5 count as right, so that means over repeats can be given.
    Raises `ValueError` when the lengths differ.
    """
    from scipy.stats import binomtest

    a, b = np.asarray(ours, dtype=float) >= 0.5, np.asarray(theirs, dtype=float) >= 0.5
    if a.shape != b.shape:
        raise ValueError(f"McNemar's test needs pairs: got {a.size} against {b.size} values")
    gains, losses = int(np.sum(a & ~b)), int(np.sum(~a & b))
    p_value = float(binomtest(gains, gains + losses, 0.5).pvalue) if gains + losses else 1.0
    return McNemar(gains, losses, p_value)
