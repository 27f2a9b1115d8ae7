"""Two systems on the same questions: interval and p-value of the mean difference, and McNemar's exact test.

Differences come as strata: for each benchmark one difference per question (ours minus theirs, each a mean over
repeats), so that repeats are clustered by question; every benchmark weighs the same, however many questions it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Differences = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean difference and the two ends of its interval."""

    mean: float
    low: float
    high: float


class McNemar(NamedTuple):
    """Discordant pairs and the exact two-sided p-value that they are as likely one way as the other."""

    gains: int
    losses: int
    p_value: float


def paired_bootstrap(
    strata: Sequence[ArrayLike], *, samples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Two-sided expanded percentile interval of a mean difference; questions are resampled within each stratum.

    The plain percentile interval of a mean is too narrow on few questions: it forgets n/(n-1) and that the
    spread is estimated. Its two tails are therefore taken further out, as far as Student's t says: T. Hesterberg,
    "What Teachers Should Know About the Bootstrap" (arXiv:1411.5279); over strata with Satterthwaite's degrees of
    freedom. It still trusts the differences that were seen: where fewer than about ten are not zero, take
    `score_interval`.

    The ends are NaN where a stratum has one question, whose spread is unknown. Raises `ValueError` when a stratum
    is empty or there is none.
    """
    arrays = differences_of(strata)
    mean = float(np.mean([array.mean() for array in arrays]))
    if any(array.size == 1 for array in arrays):
        return Interval(mean, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    draws = np.mean([_resampled_means(array, samples, rng) for array in arrays], axis=0)
    tail = _expanded_tail(arrays, (1 - confidence) / 2)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))


def _expanded_tail(arrays: Sequence[Differences], tail: float) -> float:
    from scipy.special import ndtr, stdtrit

    sizes = np.array([array.size for array in arrays])
    squared_errors = np.array([array.var(ddof=1) for array in arrays]) / sizes
    if not squared_errors.any():
        return tail
    freedom = squared_errors.sum() ** 2 / np.sum(squared_errors**2 / (sizes - 1))
    narrow = np.sum(squared_errors * (sizes - 1) / sizes)  # what resampling sees of them
    return float(ndtr(stdtrit(freedom, tail) * np.sqrt(squared_errors.sum() / narrow)))


def _resampled_means(values: Differences, samples: int, rng: np.random.Generator) -> Differences:
    # Differences of accuracies take few distinct values, so drawing how often each value
    # comes up is the same bootstrap as drawing indices, at a fraction of the memory.
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(values.size, counts / values.size, size=samples)
    means: Differences = drawn @ distinct / values.size
    return means


def sign_flip(strata: Sequence[ArrayLike], *, samples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value that each question's difference is as likely to have the other sign.

    A permutation test within strata: which of the two systems is called ours is drawn anew for every question, and
    p is the share of draws whose mean over benchmarks is at least as far from zero, the draw that was seen counted
    with them. So it is never 0, never below 1/(samples + 1), and of the stated size on any number of questions.
    Raises `ValueError` as `paired_bootstrap` does.
    """
    arrays = differences_of(strata)
    rng = np.random.default_rng(seed)
    seen = abs(float(np.mean([array.mean() for array in arrays])))
    drawn = np.mean([_flipped_means(array, samples, rng) for array in arrays], axis=0)
    # Equal sums are added up in another order than the one that was seen.
    as_far = int(np.sum(np.abs(drawn) >= seen - 1e-12))
    return (1 + as_far) / (1 + samples)


def _flipped_means(values: Differences, samples: int, rng: np.random.Generator) -> Differences:
    # Of the questions with one size of difference it is only drawn how many keep their sign.
    sizes, counts = np.unique(np.abs(values[values != 0]), return_counts=True)
    kept = rng.binomial(counts, 0.5, size=(samples, counts.size))
    means: Differences = (2 * kept - counts) @ sizes / values.size
    return means


def differences_of(strata: Sequence[ArrayLike]) -> list[Differences]:
    """The strata as arrays. Raises `ValueError` when there is none, or one is empty."""
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays or any(array.size == 0 for array in arrays):
        raise ValueError("a paired comparison needs at least one difference in every stratum")
    return arrays


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
