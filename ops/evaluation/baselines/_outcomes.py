"""The workers' own scores on the training problems, as a matrix that a router learns from."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ops.evaluation.method import TrainingData


class Outcomes(NamedTuple):
    """The workers' scores and costs on the training problems, by the ordinals of the team.

    A worker without responses enters no mean and is not chosen.
    """

    scores: NDArray[np.float64]
    """An array of shape problems × workers with the mean score over samples, 0 to 1; NaN if no sample was reachable."""
    usd: NDArray[np.float64]
    """The mean cost of each worker's response in USD; infinite for a worker without responses."""

    @classmethod
    def from_training_data(cls, training_data: TrainingData) -> Self:
        """Collect the outcomes; a refusal counts as wrong. Raises `ValueError` if no worker has answered a problem."""
        samples: dict[tuple[str, str], list[float]] = defaultdict(list)
        usd: dict[str, list[float]] = defaultdict(list)
        for row in training_data.responses:
            if row.status != "unreachable":
                samples[row.problem_key, row.worker].append(row.score)
                usd[row.worker].append(row.response.cost_usd)
        if not samples:
            raise ValueError("no worker has answered a problem of the mix: precache it first")
        names = training_data.team.names
        scores = [[_mean(samples[problem.key, name], np.nan) for name in names] for problem in training_data.problems]
        return cls(np.array(scores), np.array([_mean(usd[name], np.inf) for name in names]))

    @property
    def mean_scores(self) -> NDArray[np.float64]:
        """Each worker's mean score over problems; -1 for a worker without answers."""
        there = ~np.isnan(self.scores)
        count = there.sum(axis=0)
        return np.where(count > 0, np.where(there, self.scores, 0).sum(axis=0) / np.maximum(count, 1), -1.0)

    def choose_best_workers(self, quality: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the ordinal of the best worker in each row of `quality` (rows × workers); of equal workers the
        cheapest."""
        tied = quality >= quality.max(axis=1, keepdims=True) - 1e-9
        return np.asarray(np.argmin(np.where(tied, self.usd, np.inf), axis=1))


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
