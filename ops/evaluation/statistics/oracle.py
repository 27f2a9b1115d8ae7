"""The oracle over single workers: the best worker for each question, chosen with hindsight, with and without bias."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.evaluation.statistics.estimates import MeanEstimate, mean_estimate

Outcomes = NDArray[np.float64]


class OracleEstimate(NamedTuple):
    """Two estimates of the accuracy of each question's best worker, with standard errors over questions."""

    plain: MeanEstimate
    """Chosen and scored on the same answers: an upper bound, since the choice also rewards lucky guesses."""
    cross_fitted: MeanEstimate | None
    """Chosen on all repeats but one and scored on the one left out; None if no question has repeats."""


def oracle_over_workers(outcomes: ArrayLike) -> OracleEstimate:
    """Estimate both oracles from `outcomes` of shape (questions, workers, repeats), in [0, 1]; NaN is unscorable.

    Cross-fitting leaves out each repeat once, chooses each question's worker by its mean over the other repeats, and
    scores it on the repeat left out; the score of tied workers is their mean. The choice never uses the answers that it
    is scored on, so the estimate is unbiased for such a choice on fresh answers. An oracle with the workers' true
    success rates lies between the two estimates: a choice by few repeats can miss the best worker but not beat it.

    The cross-fitted estimate leaves out questions on which no worker has two answers; both estimates leave out
    questions without answers. Raises `ValueError` if the array does not have three axes.
    """
    array = np.asarray(outcomes, dtype=float)
    if array.ndim != 3:
        raise ValueError(f"outcomes have three axes (questions, workers, repeats), got {array.ndim}")
    rates = _means(array)
    answered = ~np.isnan(rates).all(axis=1)
    plain = mean_estimate(np.nanmax(rates[answered], axis=1)) if answered.any() else mean_estimate([])
    folds = [_fold(array, repeat) for repeat in range(array.shape[2])] if array.shape[2] > 1 else []
    scores = _means(np.stack(folds, axis=-1)) if folds else np.full(len(array), np.nan)
    known = scores[~np.isnan(scores)]
    return OracleEstimate(plain, mean_estimate(known) if known.size else None)


def _fold(outcomes: Outcomes, repeat: int) -> Outcomes:
    """Return each question's score on one repeat, for the workers with the best means over the other repeats."""
    rates = _means(np.delete(outcomes, repeat, axis=2))
    judged = outcomes[:, :, repeat]
    # A worker without an answer on either side can neither be chosen nor scored.
    rates = np.where(np.isnan(judged) | np.isnan(rates), -1.0, rates)
    best = (rates == rates.max(axis=1, keepdims=True)) & (rates >= 0)
    return _means(np.where(best, judged, np.nan))


def _means(values: Outcomes) -> Outcomes:
    """Return means over the last axis, ignoring NaN; NaN where no value is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=-1)
    sums = np.where(known, values, 0.0).sum(axis=-1)
    means: Outcomes = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means
