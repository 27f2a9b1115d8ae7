"""The value of choosing a worker for each question: with hindsight, without it, and as expected by chance alone.

If each worker answers a question once, the best answer of all is right more often than any single worker, even if all
workers are equally good, because some worker is lucky on each question. The value of a choice is therefore estimated
with answers that were not used to make the choice.
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
"""Scores in [0, 1] of shape (questions, workers, repeats). NaN stands for an unscorable answer."""
_QUADRATURE_POINTS = 400
"""The number of equally probable difficulties that approximate the integral over questions."""
_BENCHMARK_WEIGHT = 5.0
"""The accuracy on the whole benchmark counts as much as this number of answers to a subject's questions."""
_MAX_WEIGHT = 1e9
"""A weight of the workers' mean difference so high that the answers to a single question only break ties."""


class OracleEstimate(NamedTuple):
    """Estimates of the accuracy that choosing the best worker for each question would give."""

    plain: MeanEstimate
    """Chosen and scored with the same answers. It is an upper bound, because the choice also profits from lucky
    guesses."""
    cross_fitted: MeanEstimate | None
    """Chosen with all repeats but one and scored with the remaining one; None if no question has repeats."""
    by_chance: float
    """Without repeats, the plain estimate that chance alone would give if no worker were relatively better on some
    questions (`expected_oracle_by_chance`); NaN with repeats."""


class Fold(NamedTuple):
    """Answers that are used to choose workers, and others that are used to score the choice, with an array for each
    benchmark."""

    selection_scores: list[Outcomes]
    validation_scores: list[Outcomes]
    """Shape (questions, workers). NaN stands for an answer that is not scored in this fold."""
    subjects: list[NDArray[np.intp]]
    """The index of each question's subject within its benchmark."""


def estimate_oracle(outcomes: ArrayLike) -> OracleEstimate:
    """Estimate the accuracy of an oracle that chooses the best worker for each question, in two ways.

    `outcomes` has the shape (questions, workers, repeats) and values in [0, 1]; NaN stands for an unscorable answer.
    Cross-fitting leaves out each repeat once, chooses each question's worker without it (`choose_workers`), and scores
    the worker with the repeat that was left out. The choice never uses the answers that it is scored with, so the
    estimate is unbiased for such a choice on fresh answers. An oracle that knows the workers' true success rates lies
    between the two estimates, because a choice from few repeats can miss the best worker but cannot beat it.

    The cross-fitted estimate leaves out questions on which no worker has two answers. Both estimates leave out
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
    """Yield the folds of cross-fitting: each repeat is scored once, with workers that were chosen by the other repeats.

    With a single repeat, each half of a benchmark's questions (those with even and with odd indices) is scored once,
    and the other half is used for the choice. `subjects` has the name of each question's subject; with None, each
    benchmark has one subject.
    """
    names = [[""] * len(array) for array in strata] if subjects is None else subjects
    numbers = [
        np.unique(np.asarray(question_subjects, dtype=str), return_inverse=True)[1] for question_subjects in names
    ]
    repeats = max((array.shape[2] for array in strata), default=0)
    for repeat in range(repeats if repeats > 1 else 0):
        selection_scores = [np.delete(array, repeat, axis=2) for array in strata]
        yield Fold(selection_scores, [array[:, :, repeat] for array in strata], numbers)
    for half in (0, 1) if repeats == 1 else ():
        halves = [np.arange(len(array))[:, None] % 2 == half for array in strata]
        selection_scores = [
            np.where(is_in_half[:, :, None], np.nan, array) for array, is_in_half in zip(strata, halves, strict=True)
        ]
        validation_scores = [
            np.where(is_in_half, array[:, :, 0], np.nan) for array, is_in_half in zip(strata, halves, strict=True)
        ]
        yield Fold(selection_scores, validation_scores, numbers)


def choose_workers(fold: Fold, prior: float, workers: Sequence[int] | None = None) -> list[NDArray[np.bool_]]:
    """Return the workers that are chosen for each question as a boolean array (questions, workers) for each benchmark.

    Several workers are chosen in case of a tie. A worker's expected accuracy on a question is the mean over its known
    answers to this question and `prior` pseudo-answers at its accuracy on the subject's other questions. The latter
    includes `_BENCHMARK_WEIGHT` pseudo-answers at its accuracy on the benchmark's other questions. Only `workers` (with
    None, all) can be chosen, and only where they have an answer to be scored, because a worker that was not reached can
    neither be chosen nor scored.
    """
    chosen = []
    for selection_scores, validation_scores, subjects in zip(
        fold.selection_scores, fold.validation_scores, fold.subjects, strict=True
    ):
        sums, counts = np.nansum(selection_scores, axis=2), (~np.isnan(selection_scores)).sum(axis=2)
        benchmark_rates = _smooth_rates(sums.sum(axis=0) - sums, counts.sum(axis=0) - counts)
        inside = np.arange(subjects.max(initial=0) + 1)[:, None] == subjects
        right, asked = (inside @ sums)[subjects] - sums, (inside @ counts)[subjects] - counts
        expected = _smooth_rates(right, asked, benchmark_rates, _BENCHMARK_WEIGHT)
        expected = _smooth_rates(sums, counts, expected, prior)
        is_eligible = ~np.isnan(validation_scores) & ~np.isnan(expected)
        if workers is not None:
            is_eligible &= np.isin(np.arange(validation_scores.shape[1]), list(workers))
        expected = np.where(is_eligible, expected, -1.0)
        chosen.append(is_eligible & (expected >= expected.max(axis=1, keepdims=True, initial=-1.0) - 1e-12))
    return chosen


def _smooth_rates(right: Outcomes, asked: Outcomes, prior: Outcomes | None = None, weight: float = 0.0) -> Outcomes:
    """Return `right / asked` with `weight` pseudo-answers at the rate `prior`; NaN where neither is known."""
    known = np.zeros_like(right) if prior is None else np.where(np.isnan(prior), 0.0, weight)
    right = right + known * (0.0 if prior is None else np.nan_to_num(prior))
    rates: Outcomes = np.divide(right, asked + known, out=np.full(right.shape, np.nan), where=asked + known > 0)
    return rates


def find_best_worker(fold: Fold, workers: Sequence[int] | None = None) -> int:
    """Return the index of the worker (one of `workers`) with the highest known accuracy, as the mean over
    benchmarks."""
    rates = np.array(
        [_nan_means(array.transpose(1, 0, 2).reshape(array.shape[1], -1)) for array in fold.selection_scores]
    )
    means = np.nan_to_num(_nan_means(rates.T), nan=-1.0)
    allowed = np.isin(np.arange(means.size), range(means.size) if workers is None else list(workers))
    return int(np.where(allowed, means, -2.0).argmax())


def estimate_prior_weight(strata: Sequence[ArrayLike]) -> float:
    """Return the number of answers to a question that are as informative as the workers' mean difference.

    This is about the difference of two workers on that question. The number is the variance of a single answer's
    difference, given the question, divided by the variance of the true difference between questions, estimated from
    pairs of workers that answered twice. It is `_MAX_WEIGHT` if the questions show no true difference beyond the
    workers' means, and 1 without repeats.
    """
    noise_variance, true_variance = 0.0, 0.0
    repeated = False
    for array in _check_arrays(strata):
        for second in range(array.shape[1]):
            for first in range(second):
                differences = array[:, first] - array[:, second]
                counts = (~np.isnan(differences)).sum(axis=1)
                differences, counts = differences[counts > 1], counts[counts > 1]
                if not counts.size:
                    continue
                repeated = True
                centred = differences - np.nanmean(differences)
                pairs = np.nansum(centred, axis=1) ** 2 - np.nansum(centred**2, axis=1)
                between = float(np.sum(pairs / (counts - 1) / counts))
                true_variance += between
                noise_variance += float(np.sum(np.nansum(centred**2, axis=1) / counts)) - between
    if not repeated:
        return 1.0
    return min(max(noise_variance, 0.0) / true_variance, _MAX_WEIGHT) if true_variance > 0 else _MAX_WEIGHT


# ── the gain of a choice ─────────────────────────────────────────────────────────────


def estimate_choice_gain(
    strata: Sequence[ArrayLike],
    workers: Sequence[int] | None = None,
    over: Sequence[int] | None = None,
    *,
    subjects: Sequence[Sequence[str]] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return the increase in accuracy from choosing a worker for each question, with its two-sided interval.

    `strata` has an array of outcomes of shape (questions, workers, repeats) for each benchmark, and `subjects` the
    names of the questions' subjects, if they are known. The choice is that of `choose_workers` among `workers` (with
    None, all). It is compared with the best single worker or, with `over`, with the same choice among those workers.
    Both sides are chosen without the answers that they are scored with. With repeats, they are chosen by the other
    repeats and the other questions. With one answer to each question, they are chosen by the other questions of the
    subject and benchmark only, so that no difference between the questions of a subject can be found. For workers of
    equal skill the expected gain is 0.

    With K repeats, a choice by K − 1 answers misses the best worker of some questions, so the gain from knowing the
    workers' true success rates is at least as large. The interval's ends are means over the folds of the ends of score
    intervals, which is valid for any dependence between the folds. A benchmark without a scored answer in a fold is
    left out of that fold. If this leaves no fold, the interval is −1 … 1.
    """
    arrays = _check_arrays(strata)
    prior = estimate_prior_weight(arrays)
    intervals = []
    for fold in iterate_folds(arrays, subjects):
        ours = _score_choice(fold, choose_workers(fold, prior, workers))
        if over is None:
            best = find_best_worker(fold, workers)
            theirs = [scored[:, best] for scored in fold.validation_scores]
        else:
            theirs = _score_choice(fold, choose_workers(fold, prior, over))
        differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
        known = [benchmark_differences[~np.isnan(benchmark_differences)] for benchmark_differences in differences]
        if scored := [benchmark_differences for benchmark_differences in known if benchmark_differences.size]:
            intervals.append(score_interval(scored, confidence=confidence))
    if not intervals:
        return Interval(0.0, -1.0, 1.0)
    return Interval(*(float(np.mean(part)) for part in zip(*intervals, strict=True)))


def estimate_hindsight_gain(strata: Sequence[ArrayLike], *, confidence: float = 0.95) -> Interval:
    """Return by how much the plain oracle exceeds the best single worker, with its two-sided interval.

    This is an upper bound of the gain from any choice of one worker for each question. Raises `ValueError` if the best
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
    """Return the accuracy of the plain oracle that is expected for workers with these accuracies that differ in nothing
    else.

    In this model, all workers find the same questions hard: worker w solves a question of difficulty z, which is
    normally distributed, with the probability Φ(a_w + s·z), independently of the other workers. The best worker is then
    the best one on every question, and a choice gains nothing. Each a_w reproduces the worker's observed accuracy, and
    the spread s maximizes the likelihood. The first repeat of `outcomes` (questions, workers, repeats) is used. Returns
    NaN if there are no answers.
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

    def success_probabilities(spread: float) -> NDArray[np.float64]:
        """Return the probabilities of right answers, of shape (difficulties, workers)."""
        probabilities: NDArray[np.float64] = ndtr(levels * np.hypot(1, spread) + spread * difficulties[:, None])
        return np.clip(probabilities, 1e-12, 1 - 1e-12)

    # Equal rows of answers are computed once; -1 stands for no answer.
    patterns, pattern_counts = np.unique(np.nan_to_num(answers, nan=-1.0), axis=0, return_counts=True)
    right, wrong = np.where(patterns < 0, 0.0, patterns), np.where(patterns < 0, 0.0, 1 - patterns)

    def negative_log_likelihood(spread: float) -> float:
        """Return the negative log-likelihood of the answers."""
        by_difficulty = (
            right @ np.log(success_probabilities(spread)).T + wrong @ np.log1p(-success_probabilities(spread)).T
        )
        highest = by_difficulty.max(axis=1, keepdims=True)
        return -float(pattern_counts @ (highest[:, 0] + np.log(np.exp(by_difficulty - highest).mean(axis=1))))

    spread = float(minimize_scalar(negative_log_likelihood, bounds=(0.0, 20.0), method="bounded").x)
    return float(1 - np.prod(1 - success_probabilities(spread), axis=1).mean())


def _score_choice(fold: Fold, chosen: Sequence[NDArray[np.bool_]]) -> list[Outcomes]:
    """Return for each benchmark the mean score of the workers chosen for each question; NaN if none was chosen."""
    return [
        _nan_means(np.where(chosen_workers, scores, np.nan))
        for scores, chosen_workers in zip(fold.validation_scores, chosen, strict=True)
    ]


def _check_arrays(strata: Sequence[ArrayLike]) -> list[Outcomes]:
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    for array in arrays:
        if array.ndim != 3:
            raise ValueError(f"outcomes have three axes (questions, workers, repeats), got {array.ndim}")
    return arrays


def _nan_means(values: Outcomes) -> Outcomes:
    """Return means over the last axis, ignoring NaN; NaN where all values are NaN."""
    known = ~np.isnan(values)
    counts = known.sum(axis=-1)
    sums = np.where(known, values, 0.0).sum(axis=-1)
    means: Outcomes = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means
