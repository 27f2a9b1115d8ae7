"""The choice of a worker for each question: with hindsight, without it, and what chance alone gives.

With one answer of each worker to a question, the best of them is right more often than any worker, even if all workers
are equally good: on each question one of them is lucky. What a choice among workers is worth is therefore estimated on
answers that took no part in the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.results.statistics.estimates import MeanEstimate, estimate_accuracy, estimate_mean
from ops.results.statistics.paired import Interval
from ops.results.statistics.score import score_interval

Outcomes = NDArray[np.float64]
"""Scores in [0, 1] of shape (questions, workers, repeats); NaN is unscorable."""
_QUADRATURE_POINTS = 400
"""The number of difficulties, equally probable, by which the integral over questions is approximated."""
_BENCHMARK_WEIGHT = 5.0
"""The answers to a subject's questions that weigh as much as the accuracy on the whole benchmark."""
_MAX_WEIGHT = 1e9
"""A weight of the workers' mean difference beside which the answers to a single question only break ties."""


class OracleEstimate(NamedTuple):
    """Estimates of the accuracy of each question's best worker."""

    plain: MeanEstimate
    """Chosen and scored on the same answers: an upper bound, since the choice also rewards lucky guesses."""
    cross_fitted: MeanEstimate | None
    """Chosen on all repeats but one and scored on the one left out; None if no question has repeats."""
    by_chance: float
    """Without repeats, what chance makes of the plain estimate if no worker is better on some questions only
    (`expected_oracle_by_chance`); NaN with repeats."""


class Fold(NamedTuple):
    """Some answers for choosing workers, and the others for judging the choice; one array per benchmark."""

    selection_scores: list[Outcomes]
    validation_scores: list[Outcomes]
    """Shape (questions, workers); NaN is not judged in this fold."""
    subjects: list[NDArray[np.intp]]
    """The number of each question's subject within its benchmark."""


def estimate_oracle(outcomes: ArrayLike) -> OracleEstimate:
    """Estimate both oracles from `outcomes` of shape (questions, workers, repeats), in [0, 1]; NaN is unscorable.

    Cross-fitting leaves out each repeat once, chooses each question's worker without it (`choose_workers`), and scores
    the worker on the repeat left out. The choice never uses the answers that it is scored on, so the estimate is
    unbiased for such a choice on fresh answers. An oracle with the workers' true success rates lies between the two
    estimates: a choice by few repeats can miss the best worker but not beat it.

    The cross-fitted estimate leaves out questions on which no worker has two answers; both estimates leave out
    questions without answers. Raises `ValueError` if the array does not have three axes.
    """
    [array] = _check_arrays([outcomes])
    rates = _nan_means(array)
    answered = ~np.isnan(rates).all(axis=1)
    plain = estimate_accuracy(np.nanmax(rates[answered], axis=1)) if answered.any() else estimate_mean([])
    repeated = (~np.isnan(array)).sum(axis=2).max(axis=1, initial=0) > 1
    if not repeated.any():
        return OracleEstimate(plain, None, expected_oracle_by_chance(array))
    prior = estimate_prior_weight([array])
    scores = _nan_means(
        np.stack([_score_choice(fold, choose_workers(fold, prior))[0] for fold in iterate_folds([array])], axis=-1)
    )
    known = scores[repeated & ~np.isnan(scores)]
    return OracleEstimate(plain, estimate_accuracy(known), float("nan"))


# ── choosing on one part of the answers ──────────────────────────────────────────────


def iterate_folds(strata: Sequence[Outcomes], subjects: Sequence[Sequence[str]] | None = None) -> Iterator[Fold]:
    """Yield the folds: each repeat is judged once and chosen for by the others.

    With a single repeat, each half of a benchmark's questions (those at even and at odd places) is judged once, and the
    other half chooses. `subjects` has a name for each question (None: a benchmark has one subject).
    """
    names = [[""] * len(array) for array in strata] if subjects is None else subjects
    numbers = [np.unique(np.asarray(own, dtype=str), return_inverse=True)[1] for own in names]
    repeats = max((array.shape[2] for array in strata), default=0)
    for repeat in range(repeats if repeats > 1 else 0):
        known = [np.delete(array, repeat, axis=2) for array in strata]
        yield Fold(known, [array[:, :, repeat] for array in strata], numbers)
    for half in (0, 1) if repeats == 1 else ():
        halves = [np.arange(len(array))[:, None] % 2 == half for array in strata]
        known = [np.where(here[:, :, None], np.nan, array) for array, here in zip(strata, halves, strict=True)]
        judged = [np.where(here, array[:, :, 0], np.nan) for array, here in zip(strata, halves, strict=True)]
        yield Fold(known, judged, numbers)


def choose_workers(fold: Fold, prior: float, workers: Sequence[int] | None = None) -> list[NDArray[np.bool_]]:
    """Return for each benchmark the workers chosen for each question, of shape (questions, workers); ties share.

    A worker's expected accuracy on a question is its mean over its known answers to this question and `prior` answers
    at its accuracy on the subject's other questions. That accuracy in turn includes `_BENCHMARK_WEIGHT` answers at its
    accuracy on the benchmark's other questions. Only `workers` (None: all) can be chosen, and none of them without a
    judged answer, since a worker that was not reached can be neither chosen nor scored.
    """
    made = []
    for known, judged, subjects in zip(fold.selection_scores, fold.validation_scores, fold.subjects, strict=True):
        sums, counts = np.nansum(known, axis=2), (~np.isnan(known)).sum(axis=2)
        everywhere = _smooth_rates(sums.sum(axis=0) - sums, counts.sum(axis=0) - counts)
        inside = np.arange(subjects.max(initial=0) + 1)[:, None] == subjects
        right, asked = (inside @ sums)[subjects] - sums, (inside @ counts)[subjects] - counts
        expected = _smooth_rates(right, asked, everywhere, _BENCHMARK_WEIGHT)
        expected = _smooth_rates(sums, counts, expected, prior)
        able = ~np.isnan(judged) & ~np.isnan(expected)
        if workers is not None:
            able &= np.isin(np.arange(judged.shape[1]), list(workers))
        expected = np.where(able, expected, -1.0)
        made.append(able & (expected >= expected.max(axis=1, keepdims=True, initial=-1.0) - 1e-12))
    return made


def _smooth_rates(right: Outcomes, asked: Outcomes, prior: Outcomes | None = None, weight: float = 0.0) -> Outcomes:
    """Return right over asked, with `weight` answers at the rate `prior` where that is known; NaN where nothing is."""
    known = np.zeros_like(right) if prior is None else np.where(np.isnan(prior), 0.0, weight)
    right = right + known * (0.0 if prior is None else np.nan_to_num(prior))
    rates: Outcomes = np.divide(right, asked + known, out=np.full(right.shape, np.nan), where=asked + known > 0)
    return rates


def find_best_worker(fold: Fold, workers: Sequence[int] | None = None) -> int:
    """Return the worker (one of `workers`) with the highest known accuracy, as the mean over benchmarks."""
    rates = np.array(
        [_nan_means(array.transpose(1, 0, 2).reshape(array.shape[1], -1)) for array in fold.selection_scores]
    )
    means = np.nan_to_num(_nan_means(rates.T), nan=-1.0)
    allowed = np.isin(np.arange(means.size), range(means.size) if workers is None else list(workers))
    return int(np.where(allowed, means, -2.0).argmax())


def estimate_prior_weight(strata: Sequence[ArrayLike]) -> float:
    """Return how many answers to a question say as much about two workers' difference on it as their mean difference.

    It is the variance of a single answer's difference, given the question, over the variance of the true difference
    between questions, from pairs of workers that answered twice. It is very large (`_MAX_WEIGHT`) where the questions
    show no true difference beyond the workers' means, and 1 without repeats.
    """
    noise, true = 0.0, 0.0
    repeated = False
    for array in _check_arrays(strata):
        for other in range(array.shape[1]):
            for one in range(other):
                differences = array[:, one] - array[:, other]
                counts = (~np.isnan(differences)).sum(axis=1)
                differences, counts = differences[counts > 1], counts[counts > 1]
                if not counts.size:
                    continue
                repeated = True
                centred = differences - np.nanmean(differences)
                pairs = np.nansum(centred, axis=1) ** 2 - np.nansum(centred**2, axis=1)
                between = float(np.sum(pairs / (counts - 1) / counts))
                true += between
                noise += float(np.sum(np.nansum(centred**2, axis=1) / counts)) - between
    if not repeated:
        return 1.0
    return min(max(noise, 0.0) / true, _MAX_WEIGHT) if true > 0 else _MAX_WEIGHT


# ── the gain of a choice ─────────────────────────────────────────────────────────────


def estimate_choice_gain(
    strata: Sequence[ArrayLike],
    workers: Sequence[int] | None = None,
    over: Sequence[int] | None = None,
    *,
    subjects: Sequence[Sequence[str]] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return what choosing a worker for each question adds to the accuracy, with its two-sided interval.

    `strata` has one array of outcomes per benchmark, of shape (questions, workers, repeats), and `subjects` the names
    of the questions' subjects, if they are known. The choice is that of `choose_workers` among `workers` (None: all).
    It is compared with the best single worker or, with `over`, with the same choice among those workers alone. Both
    sides are chosen without the answers that they are judged on: by the other repeats and the other questions or, with
    one answer to a question, by the other questions of its subject and benchmark alone, so that no difference between
    the questions of a subject can be found. For workers of equal skill the expected gain is 0.

    With K repeats a choice by K - 1 answers misses the best worker of some questions: the gain of knowing the workers'
    true success rates is at least as large. The ends are the mean over the folds of the score interval's ends, which
    holds for any dependence between folds. A benchmark on which a fold judges nothing, such as one with a single
    question and answer, is left out of the fold; the interval is -1 … 1 if this leaves no fold.
    """
    arrays = _check_arrays(strata)
    prior = estimate_prior_weight(arrays)
    intervals = []
    for fold in iterate_folds(arrays, subjects):
        ours = _score_choice(fold, choose_workers(fold, prior, workers))
        if over is None:
            best = find_best_worker(fold, workers)
            theirs = [judged[:, best] for judged in fold.validation_scores]
        else:
            theirs = _score_choice(fold, choose_workers(fold, prior, over))
        differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
        known = [own[~np.isnan(own)] for own in differences]
        if judged := [own for own in known if own.size]:
            intervals.append(score_interval(judged, confidence=confidence))
    if not intervals:
        return Interval(0.0, -1.0, 1.0)
    return Interval(*(float(np.mean(part)) for part in zip(*intervals, strict=True)))


def estimate_hindsight_gain(strata: Sequence[ArrayLike], *, confidence: float = 0.95) -> Interval:
    """Return by how much the plain oracle exceeds the best single worker, with its two-sided interval.

    It is an upper bound of what any choice of one worker for each question can add. Raises `ValueError` if the best
    worker answered no question of a benchmark.
    """
    differences = []
    arrays = _check_arrays(strata)
    best = find_best_worker(Fold(arrays, [], []))
    for array in arrays:
        rates = _nan_means(array)
        rates = rates[~np.isnan(rates[:, best])]
        differences.append(np.nanmax(rates, axis=1) - rates[:, best])
    return score_interval(differences, confidence=confidence)


def expected_oracle_by_chance(outcomes: ArrayLike) -> float:
    """Return the plain oracle's expected accuracy for workers of these accuracies that differ in nothing else.

    In this model every worker finds the same questions hard: worker w solves a question of difficulty z, which is
    normally distributed, with the probability Φ(a_w + s·z), independently of the other workers. The best worker is then
    the best on every question, and a choice gains nothing. Each a_w gives the worker's observed accuracy; the spread s
    is that of the highest likelihood. The first repeat of `outcomes` (questions, workers, repeats) is used. NaN without
    answers.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import ndtr, ndtri

    [array] = _check_arrays([outcomes])
    answers = array[:, :, 0] if array.shape[2] else np.empty((0, 0))
    answers = answers[:, ~np.isnan(answers).all(axis=0)] if answers.size else answers
    answers = answers[~np.isnan(answers).all(axis=1)]
    if not answers.size:
        return float("nan")
    accuracies = np.nanmean(answers, axis=0)
    levels = ndtri(np.clip(accuracies, 1e-9, 1 - 1e-9))
    difficulties = ndtri((np.arange(_QUADRATURE_POINTS) + 0.5) / _QUADRATURE_POINTS)

    def chances(spread: float) -> NDArray[np.float64]:
        """Return the probabilities of right answers, of shape (difficulties, workers)."""
        probabilities: NDArray[np.float64] = ndtr(levels * np.hypot(1, spread) + spread * difficulties[:, None])
        return np.clip(probabilities, 1e-12, 1 - 1e-12)

    # Equal rows of answers are computed once; -1 stands for no answer.
    patterns, times = np.unique(np.nan_to_num(answers, nan=-1.0), axis=0, return_counts=True)
    right, wrong = np.where(patterns < 0, 0.0, patterns), np.where(patterns < 0, 0.0, 1 - patterns)

    def unlikely(spread: float) -> float:
        """Return the negative log-likelihood of the answers."""
        by_difficulty = right @ np.log(chances(spread)).T + wrong @ np.log1p(-chances(spread)).T
        highest = by_difficulty.max(axis=1, keepdims=True)
        return -float(times @ (highest[:, 0] + np.log(np.exp(by_difficulty - highest).mean(axis=1))))

    spread = float(minimize_scalar(unlikely, bounds=(0.0, 20.0), method="bounded").x)
    return float(1 - np.prod(1 - chances(spread), axis=1).mean())


def _score_choice(fold: Fold, chosen: Sequence[NDArray[np.bool_]]) -> list[Outcomes]:
    """Return for each benchmark the judged score of each question's chosen workers; NaN without one."""
    return [
        _nan_means(np.where(here, judged, np.nan)) for judged, here in zip(fold.validation_scores, chosen, strict=True)
    ]


def _check_arrays(strata: Sequence[ArrayLike]) -> list[Outcomes]:
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    for array in arrays:
        if array.ndim != 3:
            raise ValueError(f"outcomes have three axes (questions, workers, repeats), got {array.ndim}")
    return arrays


def _nan_means(values: Outcomes) -> Outcomes:
    """Return means over the last axis, ignoring NaN; NaN where no value is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=-1)
    sums = np.where(known, values, 0.0).sum(axis=-1)
    means: Outcomes = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means
