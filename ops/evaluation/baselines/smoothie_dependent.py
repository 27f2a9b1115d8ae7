"""Smoothie, dependent on the question: the worker that lies nearest to all others on the questions most like it."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import asking
from ops.evaluation.baselines._embedding import QuestionEmbedding
from ops.evaluation.baselines._smoothie import DIFFERS, SOURCE, closest, deviations, distances, everybody
from ops.evaluation.method import Attempt, Known, Method

NEIGHBOURS = 20
"""n0, the question itself among them: the number in the authors' scripts, for no gold answer is known to tune it by."""


@asking(
    "Smoothie dependent",
    place=61,
    calls=lambda workers: workers,
    source=SOURCE,
    differs=f"{DIFFERS} Neighbours are {NEIGHBOURS} questions of the benchmark by TF-IDF with truncated SVD.",
)
def smoothie_dependent(known: Known) -> Method:
    """One estimate a question (the paper's Smoothie-Local). Raises as `everybody` and `QuestionEmbedding.fit` do."""
    embedding = QuestionEmbedding.fit(known.problems, known.seed)

    def choose(attempts: Sequence[Attempt]) -> list[int]:
        from sklearn.neighbors import NearestNeighbors

        vectors = embedding.of([attempt.problem for attempt in attempts])
        index = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(attempts)), metric="cosine").fit(vectors)
        near = index.kneighbors(vectors, return_distance=False)
        return closest(attempts, deviations(distances(attempts)[near].mean(axis=1)))

    return Method.beside(everybody(known), choose)
