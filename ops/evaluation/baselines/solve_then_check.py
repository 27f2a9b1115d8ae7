"""Baseline: the best worker solves and then checks its own answer, the cheapest workflow with two steps."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, checked


@asking(
    "solve, then check",
    place=46,
    calls=lambda workers: 2,
    source="arXiv:2303.17651 (Self-Refine)",
    differs="There is one round, in which one call both criticises and corrects the answer. The Conductor's paper "
    "does not have this baseline.",
)
def solve_then_check(known: Known) -> Method:
    """The worker that is best on the training questions solves the question and then checks its answer."""
    return Method.static(checked(known.best, known.best), known.team.names[known.best])
