"""The code of both Smoothie baselines, which estimate each worker's quality without gold answers.

The quality is estimated from the distances between the workers' answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ops.evaluation.baselines._embedding import make_vectorizer
from ops.evaluation.method import Attempt, Branches, TrainingData
from ops.workflow.grammar import Workflow

SOURCE = "arXiv:2412.04692 (Smoothie)"
DIFFERENCES = (
    "Answers are embedded by TF-IDF of words and characters over the answers to the benchmark, and not by "
    "a sentence "
    "encoder. A worker that gave no answer is not chosen."
)


def list_worker_branches(training_data: TrainingData) -> Branches:
    """Return one single-worker workflow per worker on offer. Raises `ValueError` for fewer than three workers."""
    workers = sorted(training_data.team.ordinals)
    if len(workers) < 3:
        raise ValueError(f"Smoothie compares at least three workers, the pool has {len(workers)}")
    return tuple(Workflow.single(worker) for worker in workers)


def measure_distances(attempts: Sequence[Attempt]) -> NDArray[np.float64]:
    """Return the squared distances (0 to 2) between the answers' unit vectors: questions × workers × workers."""
    texts = [answer or "" for attempt in attempts for answer in attempt.answers]
    vectors = make_vectorizer().fit([*texts, "answer"]).transform(texts)  # the vectorizer needs at least one word
    lengths = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)))
    units = vectors.multiply(1 / np.maximum(lengths, 1e-12)).tocsr()
    made = []
    for start in range(0, len(texts), len(attempts[0].answers)):
        own = units[start : start + len(attempts[0].answers)]
        squares = np.asarray(own.multiply(own).sum(axis=1)).ravel()
        made.append(squares[:, None] + squares[None, :] - 2 * (own @ own.T).toarray())
    return np.array(made)


def estimate_deviations(apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimate each worker's expected squared distance from the true answer: … × workers × workers → … × workers.

    If errors are independent, the squared distance between two answers is the sum of their deviations. Three pairs then
    give a_i = ½ (d_ij + d_ik - d_jk); the code computes the closed form of the mean over all pairs j, k. The paper's
    quality θ_i is inversely proportional to it.
    """
    workers = apart.shape[-1]
    own = apart.sum(axis=-1)
    pairs = own.sum(axis=-1, keepdims=True) / 2
    return np.asarray(((workers - 1) * own - pairs) / ((workers - 1) * (workers - 2)))


def choose_closest(attempts: Sequence[Attempt], deviation: NDArray[np.float64]) -> list[int]:
    """Return for each question the branch with the smallest deviation among those with an answer."""
    silent = np.array([[answer is None for answer in attempt.answers] for attempt in attempts])
    return [int(branch) for branch in np.where(silent, np.inf, deviation).argmin(axis=1)]
