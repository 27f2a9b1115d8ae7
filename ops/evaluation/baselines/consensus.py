"""Baseline: the majority vote of all workers, one answer each."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, voted_beside


@asking(
    "consensus",
    place=46,
    calls=lambda workers: workers,
    source="arXiv:2203.11171 (self-consistency), with one answer of every worker instead of several answers of one",
    differs="If several answers are equally frequent, the one of the worker that is better on the training questions "
    "counts.",
    own_answers=True,
)
def consensus(known: Known) -> Method:
    """Every worker answers, and the most frequent answer counts."""
    return voted_beside(known.ranking)
