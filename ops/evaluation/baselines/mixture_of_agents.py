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
    source="arXiv:2406.04692, and as a baseline arXiv:2512.04388, Appendix A.3",
    differences="There is one layer, as in the Conductor's paper, while the authors' method has three. The "
    "prompt of the "
    f"aggregator is Podium's. In a pool of more than {PROPOSERS} workers, the {PROPOSERS} that are best on the "
    "training questions answer.",
)
def mixture_of_agents(training_data: TrainingData) -> Method:
    """Several workers answer, and one of them writes the final answer from their answers.

    The seed draws this aggregator among the proposers for every question and repeat.
    """
    proposers = sorted(training_data.ranking[:PROPOSERS])

    def branches(problems: Sequence[Problem], repeat: int) -> list[Branches]:
        drawn = [Random(f"{training_data.seed} {problem.key} {repeat}").choice(proposers) for problem in problems]
        return [(make_mixture(proposers, aggregator),) for aggregator in drawn]

    return Method(branches)
