"""Baseline: majority vote over five samples of the best worker (self-consistency); a costlier system should beat it."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import VOTERS, Method, TrainingData, vote_over_samples


@workflow_baseline(
    "5 × consensus",
    position=44,
    calls_per_question=lambda workers: VOTERS,
    source="arXiv:2512.04388, Section 4.1; arXiv:2203.11171 (self-consistency)",
    differences="Samples are drawn at the pool's own temperature. Answers are one where the benchmark's grader "
    "finds them"
    " equal, programs where their syntax is; of answers with as many votes the one given first counts.",
)
def five_consensus(training_data: TrainingData) -> Method:
    """Vote over samples of the best single worker by the training mix."""
    return vote_over_samples(training_data.best_worker, training_data.team.names[training_data.best_worker])
