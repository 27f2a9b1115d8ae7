"""What the workers scored alone on the training problems, as a matrix that a router learns from."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ops.evaluation.method import Known


class Outcomes(NamedTuple):
    """By the ordinals of `Known.team`. A worker that gave no response is in no mean, and is never chosen."""

    scores: NDArray[np.float64]
    """Problems × workers: the mean over samples, 0 to 1; NaN where none could be reached."""
    usd: NDArray[np.float64]
    """Mean USD of a worker's response; infinite where it gave none."""

    @classmethod
    def of(cls, known: Known) -> Self:
        """A refusal counts as wrong. Raises `ValueError` where there is no answer."""
        samples: dict[tuple[str, str], list[float]] = defaultdict(list)
        usd: dict[str, list[float]] = defaultdict(list)
        for row in known.responses:
            if row.status != "unreachable":
                samples[row.problem_key, row.worker].append(row.score)
                usd[row.worker].append(row.response.cost_usd)
        if not samples:
            raise ValueError("no worker has answered a problem of the mix: precache it first")
        names = known.team.names
        scores = [[_mean(samples[problem.key, name], np.nan) for name in names] for problem in known.problems]
        return cls(np.array(scores), np.array([_mean(usd[name], np.inf) for name in names]))

    @property
    def means(self) -> NDArray[np.float64]:
        """Each worker's mean over problems; -1 for one that answered none."""
        there = ~np.isnan(self.scores)
        count = there.sum(axis=0)
        return np.where(count > 0, np.where(there, self.scores, 0).sum(axis=0) / np.maximum(count, 1), -1.0)

    def best(self, quality: NDArray[np.float64]) -> NDArray[np.intp]:
        """Rows × workers → the ordinal of each row's best worker, of equals the cheapest."""
        tied = quality >= quality.max(axis=1, keepdims=True) - 1e-9
        return np.asarray(np.argmin(np.where(tied, self.usd, np.inf), axis=1))


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
