"""The oracle over single workers: the best worker of each question, with hindsight and without its luck."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.evaluation.statistics.estimates import MeanEstimate, mean_estimate

Outcomes = NDArray[np.float64]


class OracleEstimate(NamedTuple):
    """What choosing each question's best worker scores, two ways, ± their standard errors over questions."""

    plain: MeanEstimate
    """Chosen and scored on the same answers: an upper bound, since of several guessers the lucky one is chosen."""
    cross_fitted: MeanEstimate | None
    """Chosen on all repeats but one and scored on that one; None where no question was repeated."""


def oracle_over_workers(outcomes: ArrayLike) -> OracleEstimate:
    """Both oracles from `outcomes`, of shape (questions, workers, repeats) and in [0, 1]; NaN: unscorable.

    Cross-fitting: every repeat is left out once, each question's worker is chosen by its mean over the others, and
    scored on the one left out; equals share the score. No answer is judged that took part in its own choice, so it
    is the unbiased estimate of what that choice gives on fresh answers. The oracle that knew each worker's success
    rate lies between the two: a choice by few repeats may miss the best worker, never beat it. Questions
    without two answers of any worker are left out of the cross-fitted one, those without an answer of both. Raises
    `ValueError` on another shape.
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
    """Each question's score on one repeat, of the workers that are best on the others."""
    rates = _means(np.delete(outcomes, repeat, axis=2))
    judged = outcomes[:, :, repeat]
    # A worker whose answer is not known on either side can neither be chosen nor be judged.
    rates = np.where(np.isnan(judged) | np.isnan(rates), -1.0, rates)
    best = (rates == rates.max(axis=1, keepdims=True)) & (rates >= 0)
    return _means(np.where(best, judged, np.nan))


def _means(values: Outcomes) -> Outcomes:
    """Means over the last axis of what is known; NaN where nothing is."""
    known = ~np.isnan(values)
    counts = known.sum(axis=-1)
    sums = np.where(known, values, 0.0).sum(axis=-1)
    means: Outcomes = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means
