"""Baseline: Smoothie-Global; all workers answer, and one worker's answers are chosen for a whole benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.baselines._smoothie import (
    DIFFERENCES,
    SOURCE,
    choose_closest,
    estimate_deviations,
    list_worker_branches,
    measure_distances,
)
from ops.evaluation.method import Attempt, Method, TrainingData


@workflow_baseline(
    "Smoothie",
    position=60,
    calls_per_question=lambda workers: workers,
    source=SOURCE,
    differences=DIFFERENCES,
    uses_solo_responses=True,
)
def smoothie(training_data: TrainingData) -> Method:
    """Every worker answers, and the answer of the worker that agrees most with the others on the benchmark counts.

    Raises `ValueError` for fewer than three workers.
    """
    return Method.side_by_side(list_worker_branches(training_data), choose)


def choose(attempts: Sequence[Attempt]) -> list[int]:
    """Choose the worker with the smallest deviation over all questions, among those that answered the question."""
    return choose_closest(attempts, estimate_deviations(measure_distances(attempts).mean(axis=0, keepdims=True)))
