"""Baseline: Smoothie-Local; all workers answer, and the worker is chosen by its quality on similar questions."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.baselines._embedding import QuestionEmbedding
from ops.evaluation.baselines._smoothie import (
    DIFFERENCES,
    SOURCE,
    choose_closest,
    estimate_deviations,
    list_worker_branches,
    measure_distances,
)
from ops.evaluation.method import Attempt, Method, TrainingData

NEIGHBOURS = 20
"""n0, including the question itself; the value in the authors' scripts, because tuning it would need gold answers."""


@workflow_baseline(
    "Smoothie dependent",
    position=61,
    calls_per_question=lambda workers: workers,
    source=SOURCE,
    differences=f"{DIFFERENCES} The similar questions are the {NEIGHBOURS} nearest of the benchmark by TF-IDF "
    f"with truncated "
    "SVD.",
    uses_solo_responses=True,
)
def smoothie_dependent(training_data: TrainingData) -> Method:
    """Every worker answers, and the answer of the worker that agrees most with the others on similar questions counts.

    Raises `ValueError` for fewer than three workers, or without training problems.
    """
    embedding = QuestionEmbedding.fit(training_data.problems, training_data.seed)

    def choose(attempts: Sequence[Attempt]) -> list[int]:
        from sklearn.neighbors import NearestNeighbors

        vectors = embedding.embed([attempt.problem for attempt in attempts])
        index = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(attempts)), metric="cosine").fit(vectors)
        near = index.kneighbors(vectors, return_distance=False)
        return choose_closest(attempts, estimate_deviations(measure_distances(attempts)[near].mean(axis=1)))

    return Method.side_by_side(list_worker_branches(training_data), choose)
