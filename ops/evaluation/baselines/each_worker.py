"""Baseline: every worker alone, one column per worker."""

from __future__ import annotations

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.stored import of_worker
from ops.results.summary import summarize


# One column per worker widens the table, so a recipe must list this baseline.
@baseline("alone", place=5, usual=False)
def each_worker(answers: Answers) -> list[Standing]:
    """Each worker answers every question on its own.

    The workers are in the order of the answers, which is the pool's order.
    """
    names = dict.fromkeys(row.worker for row in answers.evaluation)
    return [Standing(summarize(of_worker(answers.evaluation, name)), name) for name in names]
