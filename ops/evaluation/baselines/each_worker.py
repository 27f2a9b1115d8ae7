"""Baseline: every worker alone, one column per worker."""

from __future__ import annotations

from ops.evaluation.baseline import BaselineScores, SoloResponses, computed_baseline
from ops.evaluation.stored_scores import select_worker_rows
from ops.results.summary import summarize


# One column per worker widens the table, so a recipe must list this baseline.
@computed_baseline("alone", position=5, is_default=False)
def each_worker(answers: SoloResponses) -> list[BaselineScores]:
    """Each worker answers every question on its own.

    The workers are in the order of the answers, which is the pool's order.
    """
    names = dict.fromkeys(row.worker for row in answers.evaluation)
    return [BaselineScores(summarize(select_worker_rows(answers.evaluation, name)), name) for name in names]
