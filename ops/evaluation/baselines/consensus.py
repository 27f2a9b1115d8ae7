"""Baseline: the majority vote of all workers, one answer each."""

from __future__ import annotations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, vote_over_workers


@workflow_baseline(
    "consensus",
    position=46,
    calls_per_question=lambda workers: workers,
    source="arXiv:2203.11171 (self-consistency), with one answer of every worker instead of several answers of one",
    differences="If several answers are equally frequent, the one of the worker that is better on the training "
    "questions "
    "counts.",
    uses_solo_responses=True,
)
def consensus(training_data: TrainingData) -> Method:
    """Every worker answers, and the most frequent answer counts."""
    return vote_over_workers(training_data.ranking)
