"""A paired comparison pooled over seeds: standard error and p-value with clusters of questions and of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.results.statistics.score import score_interval


class PooledEstimate(NamedTuple):
    """A mean difference over seeds, questions and benchmarks, as a share (0.02 = two points)."""

    mean: float
    standard_error: float
    p_value: float
    """Two-sided, from Student's t with `degrees_of_freedom` degrees of freedom."""
    degrees_of_freedom: float
    detectable: float
    """The true difference that four of five such tests detect at the level 5 %."""


def estimate_pooled(strata: Sequence[ArrayLike]) -> PooledEstimate:
    """Estimate a mean difference from one array of shape (seeds, questions) per benchmark.

    The seeds of a question share its difficulty, and the questions of a seed share its policy: both are clusters. The
    variance is that of A. C. Cameron, J. B. Gelbach and D. L. Miller ("Robust Inference With Multiway Clustering",
    Journal of Business & Economic Statistics 29, 2011): by question, plus by seed, minus by both; never less than
    either of the first two. The degrees of freedom are Satterthwaite's over these two. Every benchmark has the same
    weight, and the seeds are the same in each. With one seed, questions are the only clusters. If all differences are
    equal, the standard error is that of the score interval and the p-value that of a sign test. Raises `ValueError` if
    there is no stratum or one is empty, or if they differ in their number of seeds.
    """
    from scipy.special import stdtr, stdtrit

    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays or any(array.ndim != 2 or array.size == 0 for array in arrays):
        raise ValueError("a pooled comparison needs at least one difference in every stratum")
    seeds = {len(array) for array in arrays}
    if len(seeds) != 1:
        raise ValueError(f"every benchmark needs the same seeds, got {sorted(seeds)}")
    mean = float(np.mean([array.mean() for array in arrays]))
    parts = [(array - array.mean()) / (array.size * len(arrays)) for array in arrays]
    questions = [_cluster_variance(part.sum(axis=0)) for part in parts]
    by_question, by_seed = sum(questions), _cluster_variance(np.sum([part.sum(axis=1) for part in parts], axis=0))
    both = sum(float(np.sum(part**2)) for part in parts)
    variance = max(by_question + by_seed - both, by_question, by_seed)
    if variance == 0:
        return _estimate_without_variance(mean, arrays)
    # Each part of the variance with the degrees of freedom of its clusters.
    terms = [(own, part.shape[1] - 1) for own, part in zip(questions, parts, strict=True)]
    terms.append((by_seed, seeds.pop() - 1))
    freedom = sum(own for own, _ in terms) ** 2 / sum(own**2 / count for own, count in terms if own > 0)
    error = variance**0.5
    p_value = 2 * float(stdtr(freedom, -abs(mean) / error))
    detectable = float(stdtrit(freedom, 0.975) + stdtrit(freedom, 0.8)) * error
    return PooledEstimate(mean, error, p_value, float(freedom), detectable)


def _estimate_without_variance(mean: float, arrays: Sequence[NDArray[np.float64]]) -> PooledEstimate:
    """Return the estimate for differences that are all equal, from a score interval and a sign test over questions."""
    from scipy.special import ndtri

    questions = [array.mean(axis=0) for array in arrays]
    interval = score_interval(questions)
    error = (interval.high - interval.low) / (2 * float(ndtri(0.975)))
    p_value = 1.0 if mean == 0 else min(1.0, 2 * 0.5 ** sum(own.size for own in questions))
    return PooledEstimate(mean, error, p_value, float("inf"), float(ndtri(0.975) + ndtri(0.8)) * error)


def _cluster_variance(sums: NDArray[np.float64]) -> float:
    """Return the variance of a total from the sums of its clusters; 0 for a single cluster."""
    count = len(sums)
    return float(np.sum(sums**2)) * count / (count - 1) if count > 1 else 0.0
