"""Baseline: one-layer Mixture-of-Agents; every worker proposes an answer, and a random worker aggregates them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ops.core.problem import Problem
from ops.evaluation.baseline import asking
from ops.evaluation.method import PROPOSERS, Branches, Known, Method, mixture


@asking(
    "Mixture-of-Agents",
    place=48,
    calls=lambda workers: min(workers, PROPOSERS) + 1,
    source="arXiv:2406.04692, and as a baseline arXiv:2512.04388, Appendix A.3",
    differs="There is one layer, as in the Conductor's paper, while the authors' method has three. The prompt of the "
    f"aggregator is Podium's. In a pool of more than {PROPOSERS} workers, the {PROPOSERS} that are best on the "
    "training questions answer.",
)
def mixture_of_agents(known: Known) -> Method:
    """Several workers answer, and one of them writes the final answer from their answers.

    The seed draws this aggregator among the proposers for every question and repeat.
    """
    proposers = sorted(known.ranking[:PROPOSERS])

    def branches(problems: Sequence[Problem], repeat: int) -> list[Branches]:
        drawn = [Random(f"{known.seed} {problem.key} {repeat}").choice(proposers) for problem in problems]
        return [(mixture(proposers, aggregator),) for aggregator in drawn]

    return Method(branches)
