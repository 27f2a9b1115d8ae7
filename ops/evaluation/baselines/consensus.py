"""Baseline: the majority vote of all workers, one answer each."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, voted_beside


@asking(
    "consensus",
    place=46,
    calls=lambda workers: workers,
    source="arXiv:2203.11171 (self-consistency), with one answer of every worker in place of samples of one",
    differs="Of answers with as many votes the one of the better worker by the training mix counts.",
    own_answers=True,
)
def consensus(known: Known) -> Method:
    """Let every worker vote."""
    return voted_beside(known.ranking)
