"""Baseline: the best fixed vote, which asks the same workers, one or several, every question."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import Method, TrainingData, vote_over_workers

STRONG_WORKERS = 5
"""The number of best single workers that may vote."""


@workflow_baseline(
    "best static vote",
    position=88,
    calls_per_question=lambda workers: min(workers, STRONG_WORKERS),
    source="`best_static` without chains and repeated answers, so that it needs no further calls",
    differences=f"The candidates are each single worker and every vote among the {STRONG_WORKERS} best workers. "
    f"If several are "
    "equally good, the cheapest is used.",
    uses_solo_responses=True,
)
def static_vote(training_data: TrainingData) -> Method:
    """The vote of workers that is best on the training questions answers every question."""
    strong = training_data.ranking[:STRONG_WORKERS]
    offered: list[Sequence[int]] = [
        chosen for size in range(1, len(strong) + 1) for chosen in combinations(strong, size)
    ]

    def score_vote(workers: Sequence[int]) -> tuple[int, float]:
        rows = training_data.run_method(vote_over_workers(workers), training_data.problems)
        return sum(row.correct for row in rows), -sum(row.cost_usd for row in rows)

    return vote_over_workers(max(offered, key=score_vote), training_data.team.names)
