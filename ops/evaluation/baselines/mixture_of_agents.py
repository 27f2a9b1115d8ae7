"""Baseline: one-layer Mixture-of-Agents; every worker proposes an answer, and a random worker aggregates them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ops.core.problem import Problem
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import PROPOSERS, Branches, Method, TrainingData, make_mixture


@workflow_baseline(
    "Mixture-of-Agents",
    position=48,
    calls_per_question=lambda workers: min(workers, PROPOSERS) + 1,
    source="arXiv:2406.04692; as a baseline arXiv:2512.04388, Appendix A.3",
    differences="One layer, as in the Conductor's paper (the authors' own has three), and our words for the "
    "aggregator. Of"
    f" a larger pool the {PROPOSERS} best by the training mix propose; a smaller one makes fewer than"
    f" {PROPOSERS + 1} calls.",
)
def mixture_of_agents(training_data: TrainingData) -> Method:
    """Draw the aggregator among the proposers by seed, for every question and repeat."""
    proposers = sorted(training_data.ranking[:PROPOSERS])

    def branches(problems: Sequence[Problem], repeat: int) -> list[Branches]:
        drawn = [Random(f"{training_data.seed} {problem.key} {repeat}").choice(proposers) for problem in problems]
        return [(make_mixture(proposers, aggregator),) for aggregator in drawn]

    return Method(branches)
