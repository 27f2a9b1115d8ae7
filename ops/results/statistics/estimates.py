"""Means with standard errors and 95 % intervals over questions, repeats, benchmarks and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ops.results.statistics.score import score_interval

_Z = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""
_MAX_ASYMMETRY = 0.2
"""If an end of a 95 % interval differs from 1.96 standard errors by more than this share, the standard error alone is
misleading."""
_PRIOR_QUESTIONS = 6
"""The number of questions, with the variance of single answers, that are added when the design effect is estimated."""


class MeanEstimate(NamedTuple):
    """A mean and its standard error, both in the unit of the values, and the number `n` of values.

    `low` and `high` are the ends of the 95 % interval of an accuracy or of a difference of accuracies. They are NaN for
    other means.
    """

    mean: float
    standard_error: float
    n: int
    low: float = float("nan")
    high: float = float("nan")

    @property
    def has_interval(self) -> bool:
        """True if the 95 % interval is known."""
        return self.low <= self.high

    @property
    def is_symmetric(self) -> bool:
        """True if the standard error describes the uncertainty, because 1.96 standard errors are about as wide as the
        95 % interval.

        It is False for few questions and near 0 and 100 %, where the standard error of the observed answers is too
        small or even 0.
        """
        reach = _Z * self.standard_error
        ends = (self.mean - self.low, self.high - self.mean)
        return reach > 0 and all(abs(end - reach) <= _MAX_ASYMMETRY * reach for end in ends)


def estimate_mean(values: ArrayLike) -> MeanEstimate:
    """Return the mean and its standard error, which is the sample standard deviation divided by √n.

    The standard error of a single value is NaN. Without values, the mean is NaN too.
    """
    array = np.asarray(values, dtype=float)
    n = int(array.size)
    if n == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    spread = float(array.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    return MeanEstimate(float(array.mean()), spread, n)


def estimate_accuracy(values: ArrayLike) -> MeanEstimate:
    """Return the mean of the questions' accuracies, each in [0, 1], with its standard error and 95 % interval.

    The interval is Wilson's (E. B. Wilson, Journal of the American Statistical Association 22, 1927). It has a positive
    width even if all answers are right or all are wrong: for 0 of 24 it extends up to 14 %. If accuracies are means
    over repeats, the interval uses the effective number of questions, which is `n` divided by the design effect: the
    variance of the questions' accuracies relative to that of single answers (N. Dean and M. Pagano, Journal of Survey
    Statistics and Methodology 3, 2015).
    """
    array = np.asarray(values, dtype=float)
    return accuracy_from_moments(*estimate_mean(array)[:3])


def accuracy_from_moments(mean: float, standard_error: float, n: int) -> MeanEstimate:
    """Return the same estimate as `estimate_accuracy`, from the mean, its standard error and the number of
    questions."""
    if not n:
        return MeanEstimate(mean, standard_error, n)
    single = mean * (1 - mean)
    observed = single if n == 1 else standard_error**2 * (n - 1)
    # The observed variance is itself uncertain. Therefore questions with the variance of single answers, whose design
    # effect is 1, are added. In simulations with 2 to 20 repeats, the interval then covers at least about 92 %.
    effect = (n * observed + _PRIOR_QUESTIONS * single) / ((n + _PRIOR_QUESTIONS) * single) if single > 0 else 1.0
    low, high = _wilson_interval(mean, n / effect)
    return MeanEstimate(mean, standard_error, n, low, high)


def _wilson_interval(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of `n` trials, widened if necessary so that it contains the share."""
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * (share * (1 - share) / n + _Z**2 / (4 * n**2)) ** 0.5
    return min(share, max(0.0, centre - reach)), max(share, min(1.0, centre + reach))


def estimate_difference(strata: Sequence[ArrayLike]) -> MeanEstimate:
    """Return the mean over benchmarks of paired differences of accuracies, with its 95 % score interval.

    `strata` has an array of differences for each benchmark. Raises `ValueError` if there is none or one is empty.
    """
    interval = score_interval(strata)
    means = average_estimates([estimate_mean(stratum) for stratum in strata])
    return means._replace(low=interval.low, high=interval.high)


def average_estimates(estimates: Sequence[MeanEstimate]) -> MeanEstimate:
    """Return the unweighted mean of independent estimates, for example of benchmarks; `n` is their total number of
    values.

    The interval adds the distances of the estimates' interval ends from their means in squares (G. Y. Zou and A.
    Donner, Statistics in Medicine 27, 2008). Its width is therefore positive even if some benchmarks are at 0 or 100 %.
    """
    if not estimates:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean, error, low, high = (
        float(np.mean([estimate.mean for estimate in estimates])),
        *(
            float(np.sqrt(np.sum(np.square(parts))) / len(estimates))
            for parts in (
                [estimate.standard_error for estimate in estimates],
                [estimate.mean - estimate.low for estimate in estimates],
                [estimate.high - estimate.mean for estimate in estimates],
            )
        ),
    )
    return MeanEstimate(mean, error, sum(estimate.n for estimate in estimates), mean - low, mean + high)


def average_over_seeds(estimates: Sequence[MeanEstimate], lower_bound: float = 0.0) -> MeanEstimate:
    """Return the mean of the estimates of several seeds on the same questions, with its standard error over the seeds.

    The interval allows for the choice of the questions and for that of the seeds: it adds, in squares, the mean
    distance of the seeds' own interval ends and Student's interval over the seeds. It is limited to `lower_bound` (−1
    for differences) and 1. `n` is the number of questions. A single seed's estimate is returned unchanged.
    """
    from scipy.special import stdtrit

    if len(estimates) == 1:
        return estimates[0]
    mean, error, seeds = estimate_mean([estimate.mean for estimate in estimates])[:3]
    half_width = float(stdtrit(seeds - 1, 0.975)) * error
    below = float(np.mean([estimate.mean - estimate.low for estimate in estimates]))
    above = float(np.mean([estimate.high - estimate.mean for estimate in estimates]))
    n = max(estimate.n for estimate in estimates)
    low, high = mean - float(np.hypot(below, half_width)), mean + float(np.hypot(above, half_width))
    return MeanEstimate(mean, error, n, max(lower_bound, low), min(1.0, high))
