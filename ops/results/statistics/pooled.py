"""A paired comparison pooled over seeds: standard error and p-value with clustering by question and by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.results.statistics.score import score_interval


class PooledEstimate(NamedTuple):
    """A mean difference over seeds, questions and benchmarks, as a share (0.02 means two points)."""

    mean: float
    standard_error: float
    p_value: float
    """Two-sided, from Student's t with `degrees_of_freedom` degrees of freedom."""
    degrees_of_freedom: float
    detectable: float
    """The true difference that such a test detects with a power of 80 % at the level of 5 %, as a share."""


def estimate_pooled(strata: Sequence[ArrayLike]) -> PooledEstimate:
    """Estimate a mean difference from an array of shape (seeds, questions) for each benchmark.

    The results of all seeds on a question share its difficulty, and the questions of a seed share its policy, so both
    are clusters. The variance is that of A. C. Cameron, J. B. Gelbach and D. L. Miller ("Robust Inference With Multiway
    Clustering", Journal of Business & Economic Statistics 29, 2011): the variance by question, plus that by seed, minus
    that by both, and at least as large as either of the first two. The degrees of freedom are Satterthwaite's for these
    two. Every benchmark has the same weight and the same seeds. With one seed, only questions are clusters. If all
    differences are equal, the standard error is that of the score interval and the p-value that of a sign test.

    Raises `ValueError` if there is no stratum, if one is empty, or if their numbers of seeds differ.
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
    by_question_and_seed = sum(float(np.sum(part**2)) for part in parts)
    variance = max(by_question + by_seed - by_question_and_seed, by_question, by_seed)
    if variance == 0:
        return _estimate_without_variance(mean, arrays)
    # Each part of the variance is combined with the degrees of freedom of its clusters.
    terms = [(part_variance, part.shape[1] - 1) for part_variance, part in zip(questions, parts, strict=True)]
    terms.append((by_seed, seeds.pop() - 1))
    degrees_of_freedom = sum(part_variance for part_variance, _ in terms) ** 2 / sum(
        part_variance**2 / count for part_variance, count in terms if part_variance > 0
    )
    error = variance**0.5
    p_value = 2 * float(stdtr(degrees_of_freedom, -abs(mean) / error))
    detectable = float(stdtrit(degrees_of_freedom, 0.975) + stdtrit(degrees_of_freedom, 0.8)) * error
    return PooledEstimate(mean, error, p_value, float(degrees_of_freedom), detectable)


def _estimate_without_variance(mean: float, arrays: Sequence[NDArray[np.float64]]) -> PooledEstimate:
    """Return the estimate for differences that are all equal, from a score interval and a sign test over questions."""
    from scipy.special import ndtri

    questions = [array.mean(axis=0) for array in arrays]
    interval = score_interval(questions)
    error = (interval.high - interval.low) / (2 * float(ndtri(0.975)))
    p_value = 1.0 if mean == 0 else min(1.0, 2 * 0.5 ** sum(question_means.size for question_means in questions))
    return PooledEstimate(mean, error, p_value, float("inf"), float(ndtri(0.975) + ndtri(0.8)) * error)


def _cluster_variance(sums: NDArray[np.float64]) -> float:
    """Return the variance of a total from the sums of its clusters; 0 for a single cluster."""
    count = len(sums)
    return float(np.sum(sums**2)) * count / (count - 1) if count > 1 else 0.0
