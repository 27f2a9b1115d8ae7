"""Baseline: the best fixed vote, which asks the same workers, one or several, every question."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ops.evaluation.baseline import asking
from ops.evaluation.method import Known, Method, voted_beside

STRONG = 5
"""The number of best single workers that may vote."""


@asking(
    "best static vote",
    place=88,
    calls=lambda workers: min(workers, STRONG),
    source="`best_static` without chains and repeated answers, so that it needs no further calls",
    differs=f"The candidates are each single worker and every vote among the {STRONG} best workers. If several are "
    "equally good, the cheapest is used.",
    own_answers=True,
)
def static_vote(known: Known) -> Method:
    """The vote of workers that is best on the training questions answers every question."""
    strong = known.ranking[:STRONG]
    offered: list[Sequence[int]] = [
        chosen for size in range(1, len(strong) + 1) for chosen in combinations(strong, size)
    ]

    def standing(workers: Sequence[int]) -> tuple[int, float]:
        rows = known.run(voted_beside(workers), known.problems)
        return sum(row.correct for row in rows), -sum(row.cost_usd for row in rows)

    return voted_beside(max(offered, key=standing), known.team.names)
