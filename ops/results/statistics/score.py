"""The score interval of a paired mean difference, which has a positive width even if no difference was observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.results.statistics.paired import Differences, Interval, check_strata

Numbers = NDArray[np.float64]


def score_interval(strata: Sequence[ArrayLike], *, confidence: float = 0.95) -> Interval:
    """Return a mean difference over strata with its two-sided interval: all differences that a score test does not
    reject.

    The method is that of T. Tango, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design" (Statistics in Medicine 17, 1998). A bootstrap takes the spread from the observed differences
    and finds none if the two systems agree. The score test uses the spread that the hypothesised difference implies, so
    the interval has a positive width for any answers and any confidence below 1.

    The method is extended in two ways. Over strata, every stratum is shifted by the same amount. For means over
    repeats, the sums of gains and losses replace their counts, and the variance is scaled by the reduction that repeats
    bring.

    Raises `ValueError` if there is no stratum, a stratum is empty, or a difference is outside [−1, 1].
    """
    from scipy.special import ndtri

    arrays = check_strata(strata)
    if any(np.abs(array).max() > 1 for array in arrays):
        raise ValueError("a score interval is of differences of accuracies, which lie in -1 … 1")
    z = float(ndtri((1 + confidence) / 2))
    mean = float(np.mean([array.mean() for array in arrays]))
    return Interval(mean, _lower_end(arrays, z), -_lower_end([-array for array in arrays], z))


def is_difference(strata: Sequence[ArrayLike], *, confidence: float = 0.95) -> bool:
    """Return whether the score test rejects a mean difference of 0, which means that `score_interval` excludes 0.

    Raises the same `ValueError` as `score_interval`.
    """
    from scipy.special import ndtri

    arrays = check_strata(strata)
    if float(np.mean([array.mean() for array in arrays])) < 0:
        arrays = [-array for array in arrays]
    means = np.array([array.mean() for array in arrays])
    mean = float(means.mean())
    z = float(ndtri((1 + confidence) / 2))
    return mean > z * _Pairs.from_differences(arrays).standard_error(np.clip(means - mean, -1.0, 1.0))


class _Pairs(NamedTuple):
    """The number of questions, the sums of gains and losses, and the effect of repeats, each as an array over the
    strata."""

    n: Numbers
    gains: Numbers
    losses: Numbers
    scale: Numbers
    """The sum of squared differences relative to that of single answers, which are either right or wrong."""
    step: Numbers
    """The smallest absolute difference that was observed, apart from 0; 1 if there is none."""

    @classmethod
    def from_differences(cls, arrays: Sequence[Differences]) -> _Pairs:
        gains = np.array([array[array > 0].sum() for array in arrays])
        losses = np.array([-array[array < 0].sum() for array in arrays])
        squares = np.array([np.sum(array**2) for array in arrays])
        sums = gains + losses
        scale = np.divide(squares, sums, out=np.ones_like(sums), where=sums > 0)
        step = np.array([np.abs(array[array != 0]).min(initial=1.0) for array in arrays])
        return cls(np.array([float(array.size) for array in arrays]), gains, losses, scale, step)

    def standard_error(self, differences: Numbers) -> float:
        """Return the standard error of the mean over strata under these true differences."""
        variances = self.scale * _discordance(self, differences) - differences**2
        # A mean between two multiples of the step implies questions on both sides of it, and so a minimum variance.
        above = np.abs(differences) % self.step
        variances = np.maximum(variances, above * (self.step - above))
        return float(np.sqrt(np.sum(variances / np.maximum(self.n - 1, 1)))) / self.n.size


def _discordance(pairs: _Pairs, differences: Numbers) -> Numbers:
    """Return the maximum-likelihood estimate of the share of discordant pairs under the given true differences."""
    n, gains, losses, *_ = pairs
    linear = (2 * n - gains + losses) * differences - gains - losses
    constant = -losses * differences * (1 - differences)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    lost = np.maximum((root - linear) / (4 * n), np.maximum(-differences, 0))
    discordance: Numbers = 2 * lost + differences
    return discordance


def _lower_end(arrays: Sequence[Differences], z: float) -> float:
    """Return the lower end of the score interval with the normal quantile `z`."""
    from scipy.optimize import brentq

    pairs = _Pairs.from_differences(arrays)
    means = np.array([array.mean() for array in arrays])
    mean = float(means.mean())

    def excess(difference: float) -> float:
        """Return how much further the mean is from a hypothesised difference than the test allows."""
        hypothesised = np.clip(means - (mean - difference), -1.0, 1.0)
        return mean - difference - z * pairs.standard_error(hypothesised)

    nearest = mean - 1e-9  # the mean itself is a root too if both systems agree on all questions
    if excess(-1.0) <= 0:
        return -1.0
    return float(brentq(excess, -1.0, nearest, xtol=1e-9)) if excess(nearest) < 0 else mean
