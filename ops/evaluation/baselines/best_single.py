"""The best single worker, chosen before the test is seen: by its responses to the training mix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ops.core.rows import ResponseRow
from ops.evaluation.baselines.single_worker import of_worker
from ops.evaluation.runner import ScoreRow
from ops.precaching.profiles import best_single


def rows(evaluation: Iterable[ResponseRow], training: Sequence[ResponseRow]) -> tuple[str, list[ScoreRow]]:
    """(its name, its score rows on the evaluation questions).

    Raises `ValueError` when there are no training responses to choose by.
    """
    name = best_single(training).worker
    return name, of_worker(evaluation, name)
