"""Baseline: a kNN router, which sends each question to the best worker on the most similar training questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.baselines._embedding import QuestionEmbedding, Vectors
from ops.evaluation.baselines._outcomes import Outcomes
from ops.evaluation.method import Method, TrainingData
from ops.workflow.grammar import Workflow

NEIGHBOUR_COUNTS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
"""The numbers of neighbours that are tried."""


class Neighbours(NamedTuple):
    """An index of the training questions by cosine distance, and the number of neighbours that decide."""

    index: Any
    outcomes: Outcomes
    size: int = 1

    @classmethod
    def fit(cls, vectors: Vectors, outcomes: Outcomes) -> Neighbours:
        """Fit the index, and choose `size` by leave-one-out on the training questions; of equal sizes the largest."""
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(metric="cosine", algorithm="brute").fit(vectors)
        most = min(len(vectors) - 1, NEIGHBOUR_COUNTS[-1])
        if most < 1:
            return cls(index, outcomes)
        others = index.kneighbors(n_neighbors=most, return_distance=False)
        routed = {
            size: outcomes.choose_best_workers(_mean_neighbour_scores(outcomes, others[:, :size]))
            for size in NEIGHBOUR_COUNTS
            if size <= most
        }
        value = {size: np.nanmean(outcomes.scores[range(len(vectors)), own]) for size, own in routed.items()}
        return cls(index, outcomes, max(value, key=lambda size: (round(float(value[size]), 9), size)))

    def route(self, vectors: Vectors) -> NDArray[np.intp]:
        """Return the ordinal of the chosen worker for each question."""
        nearest = self.index.kneighbors(vectors, n_neighbors=self.size, return_distance=False)
        return self.outcomes.choose_best_workers(_mean_neighbour_scores(self.outcomes, nearest))


def _mean_neighbour_scores(outcomes: Outcomes, nearest: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return each worker's mean score on a question's neighbours (questions × workers).

    A worker without known scores on the neighbours gets its mean over all training questions.
    """
    scores = outcomes.scores[nearest]
    there = ~np.isnan(scores)
    count = there.sum(axis=1)
    return np.where(count > 0, np.where(there, scores, 0).sum(axis=1) / np.maximum(count, 1), outcomes.mean_scores)


@workflow_baseline(
    "kNN router",
    position=50,
    calls_per_question=lambda workers: 1,
    source="arXiv:2403.12031 (the KNN router of RouterBench)",
    differences="Questions are embedded by TF-IDF of words and characters with truncated SVD, and not by a language "
    "model. The number of neighbours is chosen by leave-one-out validation on the training questions. The "
    "price only decides between workers that are equally good.",
    uses_solo_responses=True,
)
def knn_router(training_data: TrainingData) -> Method:
    """A router chooses the worker that was best on the most similar training questions.

    Raises `ValueError` if no worker has answered a problem.
    """
    embedding = QuestionEmbedding.fit(training_data.problems, training_data.seed)
    neighbours = Neighbours.fit(embedding.embed(training_data.problems), Outcomes.from_training_data(training_data))

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(worker)) for worker in neighbours.route(embedding.embed(problems))]

    return Method.routed(route, f"k = {neighbours.size}")
