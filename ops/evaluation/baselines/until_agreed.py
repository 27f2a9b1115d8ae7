"""Baseline: samples of the best worker until two agree, the same rule as a vote over the Conductor's workflows."""

from __future__ import annotations

from dataclasses import replace

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, vote_over_samples

MAX_SAMPLES, AGREEING_SAMPLES = 8, 2
"""The largest number of samples, and the number of equal answers that ends the vote."""


@workflow_baseline(
    f"until {AGREEING_SAMPLES} agree",
    position=45,
    calls_per_question=lambda workers: MAX_SAMPLES,
    source="arXiv:2305.11860 (adaptive consistency)",
    differences=f"Ends when {AGREEING_SAMPLES} of at most {MAX_SAMPLES} answers are equal; its authors stop by "
    f"a posterior probability.",
)
def until_agreed(training_data: TrainingData) -> Method:
    """Sample the best single worker by the training mix until answers agree."""
    return replace(
        vote_over_samples(training_data.best_worker, training_data.team.names[training_data.best_worker], MAX_SAMPLES),
        agreeing_answers=AGREEING_SAMPLES,
    )
