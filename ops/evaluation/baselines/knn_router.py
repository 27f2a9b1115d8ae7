"""Each question to the worker that did best on the training questions that are most like it."""

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
"""Numbers of neighbours that are tried."""


class Neighbours(NamedTuple):
    """The training questions, looked up by cosine, and the number of them that decides."""

    index: Any
    outcomes: Outcomes
    size: int = 1

    @classmethod
    def fit(cls, vectors: Vectors, outcomes: Outcomes) -> Neighbours:
        """`size` by leave-one-out on the training questions; of equally good ones the largest."""
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
        """The worker's ordinal for each question."""
        nearest = self.index.kneighbors(vectors, n_neighbors=self.size, return_distance=False)
        return self.outcomes.best(_quality(self.outcomes, nearest))


def _quality(outcomes: Outcomes, nearest: NDArray[np.intp]) -> NDArray[np.float64]:
    """Questions × workers: the mean score on each question's neighbours; one unknown there has its mean overall."""
    scores = outcomes.scores[nearest]
    there = ~np.isnan(scores)
    count = there.sum(axis=1)
    return np.where(count > 0, np.where(there, scores, 0).sum(axis=1) / np.maximum(count, 1), outcomes.means)


@asking(
    "kNN router",
    place=50,
    calls=lambda workers: 1,
    source="arXiv:2403.12031 (RouterBench), its KNN router",
    differs="Embeddings are TF-IDF of words and characters with truncated SVD, not a language model's; the number of "
    "neighbours is chosen by leave-one-out on the mix; price decides between equals only.",
)
def knn_router(known: Known) -> Method:
    """Raises `ValueError` where there is no answer."""
    embedding = QuestionEmbedding.fit(known.problems, known.seed)
    neighbours = Neighbours.fit(embedding.of(known.problems), Outcomes.of(known))

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(worker)) for worker in neighbours.route(embedding.of(problems))]

    return Method.routed(route, f"k = {neighbours.size}")
