"""Baseline: majority vote over five samples of the best worker (self-consistency); a costlier system should beat it."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import VOTERS, Known, Method, voted


@asking(
    "5 × consensus",
    place=44,
    calls=lambda workers: VOTERS,
    source="arXiv:2512.04388, Section 4.1; arXiv:2203.11171 (self-consistency)",
    differs="Samples are drawn at the pool's own temperature. Answers are one where the benchmark's grader finds them"
    " equal, programs where their syntax is; of answers with as many votes the one given first counts.",
)
def five_consensus(known: Known) -> Method:
    """Vote over samples of the best single worker by the training mix."""
    return voted(known.best, known.team.names[known.best])
