"""Baseline: the best single worker, chosen by its responses to the training mix and not by the test."""

from __future__ import annotations

from ops.evaluation.baseline import BaselineScores, SoloResponses, computed_baseline
from ops.evaluation.stored_scores import select_worker_rows
from ops.precaching import profiles
from ops.results.summary import summarize


@computed_baseline("best worker", position=10, needs_all_workers=False)
def best_single(answers: SoloResponses) -> BaselineScores:
    """The worker that is best on the training questions answers every question.

    Raises `ValueError` without training responses.
    """
    name = profiles.find_best_worker(answers.training).worker
    return BaselineScores(summarize(select_worker_rows(answers.evaluation, name)), name)
