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
    differences=f"The method ends when {AGREEING_SAMPLES} of at most {MAX_SAMPLES} answers are equal. Its "
    f"authors' method ends when the "
    "posterior probability of an answer is high enough.",
)
def until_agreed(training_data: TrainingData) -> Method:
    """The worker that is best on the training questions answers until two of its answers agree."""
    best = training_data.best_worker
    vote = vote_over_samples(best, training_data.team.names[best], MAX_SAMPLES)
    return replace(vote, agreeing_answers=AGREEING_SAMPLES)
