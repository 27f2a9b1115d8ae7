"""Baseline: the best worker solves and then checks its own answer, the cheapest workflow with two steps."""

from __future__ import annotations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, checked


@asking(
    "solve, then check",
    place=46,
    calls=lambda workers: 2,
    source="arXiv:2303.17651 (Self-Refine)",
    differs="One round, in which one call both criticises and corrects. Not among the baselines of arXiv:2512.04388.",
)
def solve_then_check(known: Known) -> Method:
    """Let the best single worker by the training mix solve the question and check the answer."""
    return Method.static(checked(known.best, known.best), known.team.names[known.best])
