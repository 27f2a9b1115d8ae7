"""Paired comparisons of two systems on the same questions: interval and p-value of the mean difference, and McNemar's
test.

The input has a stratum for each benchmark, with one difference per question (ours minus theirs, each a mean over
repeats). Repeats are thus clustered by question, and every benchmark has the same weight whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Differences = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean difference and the ends of its confidence interval, as shares."""

    mean: float
    low: float
    high: float


class McNemar(NamedTuple):
    """The numbers of questions that only we (`gains`) or only they (`losses`) answered correctly, and the exact
    two-sided p-value."""

    gains: int
    losses: int
    p_value: float


def paired_bootstrap(
    strata: Sequence[ArrayLike], *, samples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return a mean difference with its two-sided bootstrap interval, resampling questions within each stratum.

    It is the expanded percentile interval (T. Hesterberg, "What Teachers Should Know About the Bootstrap",
    arXiv:1411.5279). The plain percentile interval is too narrow for few questions, because it ignores the factor n/(n
    − 1) and the uncertainty of the estimated spread. The expanded interval widens both tails according to Student's t,
    with Satterthwaite's degrees of freedom over the strata. It still relies on the observed differences: if fewer than
    about ten are not zero, use `score_interval`.

    The ends are NaN if a stratum has a single question. Raises `ValueError` if there is no stratum or one is empty.
    """
    arrays = check_strata(strata)
    mean = float(np.mean([array.mean() for array in arrays]))
    if any(array.size == 1 for array in arrays):
        return Interval(mean, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    draws = np.mean([_resampled_means(array, samples, rng) for array in arrays], axis=0)
    tail = _expanded_tail(arrays, (1 - confidence) / 2)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))


def _expanded_tail(arrays: Sequence[Differences], tail: float) -> float:
    """Return the tail probability at which the bootstrap's quantile is taken, so that the interval has the nominal tail
    `tail`."""
    from scipy.special import ndtr, stdtrit

    sizes = np.array([array.size for array in arrays])
    squared_errors = np.array([array.var(ddof=1) for array in arrays]) / sizes
    if not squared_errors.any():
        return tail
    degrees_of_freedom = squared_errors.sum() ** 2 / np.sum(squared_errors**2 / (sizes - 1))
    resampling_variance = np.sum(squared_errors * (sizes - 1) / sizes)  # the variance under resampling
    return float(ndtr(stdtrit(degrees_of_freedom, tail) * np.sqrt(squared_errors.sum() / resampling_variance)))


def _resampled_means(values: Differences, samples: int, rng: np.random.Generator) -> Differences:
    # Differences of accuracies have few distinct values. Drawing the count of each value is equivalent to drawing
    # indices and takes a fraction of the memory.
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(values.size, counts / values.size, size=samples)
    means: Differences = drawn @ distinct / values.size
    return means


def sign_flip_test(strata: Sequence[ArrayLike], *, samples: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of a sign-flip permutation test of the mean difference.

    Under the null hypothesis, each question's difference is equally likely to have either sign, so each draw swaps the
    two systems at random for every question. The p-value is the share of draws whose mean over benchmarks is at least
    as far from zero as the observed mean, which counts as one draw. It is therefore at least 1/(samples + 1), and the
    test keeps its level for any number of questions. Raises `ValueError` if there is no stratum or one is empty.
    """
    arrays = check_strata(strata)
    rng = np.random.default_rng(seed)
    observed = abs(float(np.mean([array.mean() for array in arrays])))
    drawn = np.mean([_flipped_means(array, samples, rng) for array in arrays], axis=0)
    # The tolerance allows for the order of summation, which differs from that of the observed mean.
    at_least_as_far = int(np.sum(np.abs(drawn) >= observed - 1e-12))
    return (1 + at_least_as_far) / (1 + samples)


def _flipped_means(values: Differences, samples: int, rng: np.random.Generator) -> Differences:
    # For the questions with the same size of difference, only the number that keep their sign is drawn.
    sizes, counts = np.unique(np.abs(values[values != 0]), return_counts=True)
    kept = rng.binomial(counts, 0.5, size=(samples, counts.size))
    means: Differences = (2 * kept - counts) @ sizes / values.size
    return means


def check_strata(strata: Sequence[ArrayLike]) -> list[Differences]:
    """Return the strata as arrays. Raises `ValueError` if there is no stratum or one is empty."""
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays or any(array.size == 0 for array in arrays):
        raise ValueError("a paired comparison needs at least one difference in every stratum")
    return arrays


def mcnemar_test(ours: ArrayLike, theirs: ArrayLike) -> McNemar:
    """Apply McNemar's exact test, a binomial test on the discordant pairs, to two vectors of right (1) and wrong (0)
    answers.

    Values of at least 0.5 count as right, so means over repeats are accepted. Raises `ValueError` if the lengths
    differ.
    """
    from scipy.stats import binomtest

    a, b = np.asarray(ours, dtype=float) >= 0.5, np.asarray(theirs, dtype=float) >= 0.5
    if a.shape != b.shape:
        raise ValueError(f"McNemar's test needs pairs: got {a.size} against {b.size} values")
    gains, losses = int(np.sum(a & ~b)), int(np.sum(~a & b))
    p_value = float(binomtest(gains, gains + losses, 0.5).pvalue) if gains + losses else 1.0
    return McNemar(gains, losses, p_value)
