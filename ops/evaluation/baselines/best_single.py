"""Baseline: the best single worker, chosen by its responses to the training mix and not by the test."""

from __future__ import annotations

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.stored import of_worker
from ops.precaching import profiles
from ops.results.summary import summarize


@baseline("best worker", place=10, every_worker=False)
def best_single(answers: Answers) -> Standing:
    """Score the best single worker. Raises `ValueError` without training responses."""
    name = profiles.find_best_worker(answers.training).worker
    return Standing(summarize(of_worker(answers.evaluation, name)), name)
