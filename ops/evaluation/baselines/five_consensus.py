"""Baseline: majority vote over five samples of the best worker (self-consistency); a costlier system should beat it."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import VOTERS, Method, TrainingData, vote_over_samples


@workflow_baseline(
    "5 × consensus",
    position=44,
    calls_per_question=lambda workers: VOTERS,
    source="arXiv:2512.04388, Section 4.1; arXiv:2203.11171 (self-consistency)",
    differences="The answers are drawn at the temperature that the pool states. Two answers are equal if the "
    "benchmark's "
    "grader says so, and two programs are equal if their syntax trees are. If several answers are equally "
    "frequent, the one that was given first counts.",
)
def five_consensus(training_data: TrainingData) -> Method:
    """The worker that is best on the training questions answers five times, and the most frequent answer counts."""
    return vote_over_samples(training_data.best_worker, training_data.team.names[training_data.best_worker])
