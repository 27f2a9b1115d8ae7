"""Baseline: a kNN router, which sends each question to the best worker on the most similar training questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.evaluation.baseline import asking
from ops.evaluation.baselines._embedding import QuestionEmbedding, Vectors
from ops.evaluation.baselines._outcomes import Outcomes
from ops.evaluation.method import Known, Method
from ops.workflow.grammar import Workflow

SIZES = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
"""The numbers of neighbours that are tried."""


class Neighbours(NamedTuple):
    """An index of the training questions by cosine distance, and the number of neighbours that decide."""

    index: Any
    outcomes: Outcomes
    size: int = 1

    @classmethod
    def fit(cls, vectors: Vectors, outcomes: Outcomes) -> Neighbours:
        """Choose `size` by leave-one-out on the training questions; ties go to the largest."""
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(metric="cosine", algorithm="brute").fit(vectors)
        most = min(len(vectors) - 1, SIZES[-1])
        if most < 1:
            return cls(index, outcomes)
        others = index.kneighbors(n_neighbors=most, return_distance=False)
        routed = {size: outcomes.best(_quality(outcomes, others[:, :size])) for size in SIZES if size <= most}
        value = {size: np.nanmean(outcomes.scores[range(len(vectors)), own]) for size, own in routed.items()}
        return cls(index, outcomes, max(value, key=lambda size: (round(float(value[size]), 9), size)))

    def route(self, vectors: Vectors) -> NDArray[np.intp]:
        """Return the ordinal of the chosen worker for each question."""
        nearest = self.index.kneighbors(vectors, n_neighbors=self.size, return_distance=False)
        return self.outcomes.best(_quality(self.outcomes, nearest))


def _quality(outcomes: Outcomes, nearest: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return each worker's mean score on a question's neighbours (questions × workers).

    A worker without known scores on the neighbours gets its mean over all training questions.
    """
    scores = outcomes.scores[nearest]
    there = ~np.isnan(scores)
    count = there.sum(axis=1)
    return np.where(count > 0, np.where(there, scores, 0).sum(axis=1) / np.maximum(count, 1), outcomes.means)


@asking(
    "kNN router",
    place=50,
    calls=lambda workers: 1,
    source="arXiv:2403.12031 (the KNN router of RouterBench)",
    differs="Questions are embedded by TF-IDF of words and characters with truncated SVD, and not by a language "
    "model. The number of neighbours is chosen by leave-one-out validation on the training questions. The "
    "price only decides between workers that are equally good.",
    own_answers=True,
)
def knn_router(known: Known) -> Method:
    """A router chooses the worker that was best on the most similar training questions.

    Raises `ValueError` if no worker has answered a problem.
    """
    embedding = QuestionEmbedding.fit(known.problems, known.seed)
    neighbours = Neighbours.fit(embedding.of(known.problems), Outcomes.of(known))

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(worker)) for worker in neighbours.route(embedding.of(problems))]

    return Method.routed(route, f"k = {neighbours.size}")
