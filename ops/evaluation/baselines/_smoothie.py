"""What both forms of Smoothie share: how good each worker is, from how far the answers lie apart. No gold answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ops.evaluation.baselines._embedding import tfidf
from ops.evaluation.method import Attempt, Branches, Known
from ops.workflow.grammar import Workflow

SOURCE = "arXiv:2412.04692 (Smoothie)"
DIFFERS = (
    "Answers are embedded by TF-IDF of words and characters over the benchmark's own answers, not by a sentence "
    "encoder; a worker that gave no answer is passed over."
)


def everybody(known: Known) -> Branches:
    """Each worker on offer alone. Raises `ValueError` for fewer than three: two only differ from each other."""
    workers = sorted(known.team.ordinals)
    if len(workers) < 3:
        raise ValueError(f"Smoothie compares at least three workers, the pool has {len(workers)}")
    return tuple(Workflow.single(worker) for worker in workers)


def distances(attempts: Sequence[Attempt]) -> NDArray[np.float64]:
    """Questions × workers × workers: squared distances between the answers' unit vectors, 0 to 2."""
    texts = [answer or "" for attempt in attempts for answer in attempt.answers]
    vectors = tfidf().fit([*texts, "answer"]).transform(texts)  # without any word there is nothing to fit
    lengths = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)))
    units = vectors.multiply(1 / np.maximum(lengths, 1e-12)).tocsr()
    made = []
    for start in range(0, len(texts), len(attempts[0].answers)):
        own = units[start : start + len(attempts[0].answers)]
        squares = np.asarray(own.multiply(own).sum(axis=1)).ravel()
        made.append(squares[:, None] + squares[None, :] - 2 * (own @ own.T).toarray())
    return np.array(made)


def deviations(apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """… × workers × workers → … × workers: each worker's expected squared distance from the true answer.

    If errors are independent, what lies between two answers is the sum of their deviations: three pairs give
    a_i = ½ (d_ij + d_ik - d_jk), and the mean over all pairs j, k is this closed form. The paper's quality θ_i
    is inversely proportional to it.
    """
    workers = apart.shape[-1]
    own = apart.sum(axis=-1)
    pairs = own.sum(axis=-1, keepdims=True) / 2
    return np.asarray(((workers - 1) * own - pairs) / ((workers - 1) * (workers - 2)))


def closest(attempts: Sequence[Attempt], deviation: NDArray[np.float64]) -> list[int]:
    """For each question the branch of the least deviation among those that answered."""
    silent = np.array([[answer is None for answer in attempt.answers] for attempt in attempts])
    return [int(branch) for branch in np.where(silent, np.inf, deviation).argmin(axis=1)]
