"""Baseline: majority vote over five samples of the best worker (self-consistency); a costlier system should beat it."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import VOTERS, Known, Method, voted


@asking(
    "5 × consensus",
    place=44,
    calls=lambda workers: VOTERS,
    source="arXiv:2512.04388, Section 4.1; arXiv:2203.11171 (self-consistency)",
    differs="The answers are drawn at the temperature that the pool states. Two answers are equal if the benchmark's "
    "grader says so, and two programs are equal if their syntax trees are. If several answers are equally "
    "frequent, the one that was given first counts.",
)
def five_consensus(known: Known) -> Method:
    """The worker that is best on the training questions answers five times, and the most frequent answer counts."""
    return voted(known.best, known.team.names[known.best])
