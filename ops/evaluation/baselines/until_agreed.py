"""Baseline: samples of the best worker until two agree, the same vote as one over the Conductor's workflows."""

from __future__ import annotations

from dataclasses import replace

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, voted

MOST, AGREE = 8, 2
"""The most samples, and the equal answers that end the vote."""


@asking(
    f"until {AGREE} agree",
    place=45,
    calls=lambda workers: MOST,
    source="arXiv:2305.11860 (adaptive consistency)",
    differs=f"The method ends when {AGREE} of at most {MOST} answers are equal. Its authors' method ends when the "
    "posterior probability of an answer is high enough.",
)
def until_agreed(known: Known) -> Method:
    """The worker that is best on the training questions answers until two of its answers agree."""
    return replace(voted(known.best, known.team.names[known.best], MOST), agree=AGREE)
