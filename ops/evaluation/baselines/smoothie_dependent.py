"""Baseline: Smoothie-Local; all workers answer, and the worker is chosen by its quality on similar questions."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import asking
from ops.evaluation.baselines._embedding import QuestionEmbedding
from ops.evaluation.baselines._smoothie import DIFFERS, SOURCE, closest, deviations, distances, everybody
from ops.evaluation.method import Attempt, Known, Method

NEIGHBOURS = 20
"""n0, including the question itself; the value in the authors' scripts, because tuning it would need gold answers."""


@asking(
    "Smoothie dependent",
    place=61,
    calls=lambda workers: workers,
    source=SOURCE,
    differs=f"{DIFFERS} The similar questions are the {NEIGHBOURS} nearest of the benchmark by TF-IDF with truncated "
    "SVD.",
    own_answers=True,
)
def smoothie_dependent(known: Known) -> Method:
    """Every worker answers, and the answer of the worker that agrees most with the others on similar questions counts.

    Raises `ValueError` for fewer than three workers, or without training problems.
    """
    embedding = QuestionEmbedding.fit(known.problems, known.seed)

    def choose(attempts: Sequence[Attempt]) -> list[int]:
        from sklearn.neighbors import NearestNeighbors

        vectors = embedding.of([attempt.problem for attempt in attempts])
        index = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(attempts)), metric="cosine").fit(vectors)
        near = index.kneighbors(vectors, return_distance=False)
        return closest(attempts, deviations(distances(attempts)[near].mean(axis=1)))

    return Method.beside(everybody(known), choose)
