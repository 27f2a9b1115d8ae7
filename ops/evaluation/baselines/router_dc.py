"""Baseline: RouterDC, which sends a question to the worker whose learned vector is closest to the question's vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.baselines._embedding import QuestionEmbedding, Vectors
from ops.evaluation.baselines._outcomes import Outcomes
from ops.evaluation.method import Method, TrainingData
from ops.workflow.grammar import Workflow

if TYPE_CHECKING:
    from torch import Generator, Tensor

POSITIVES = NEGATIVES = 3
"""K+ and K-: the largest numbers of positive and negative workers per question in the contrastive loss."""
CLUSTERS, NEGATIVE_QUESTIONS = 5, 3
"""N, the number of question groups, and H, the number of negative questions from other groups."""
WEIGHT = 1.0
"""λ, the weight of the loss between questions."""
STEPS, BATCH, RATE, DECAY, WIDTH = 1000, 64, 5e-3, 0.01, 128
"""Settings of AdamW, and the width of the vectors. The paper's learning rate suits a pretrained encoder instead."""
HELD_OUT_EVERY, CHECK_EVERY = 5, 50
"""One in `HELD_OUT_EVERY` problems is held out; every `CHECK_EVERY` steps the router is evaluated on the held-out
problems."""


class Router(NamedTuple):
    """The learned weights: `encoder` of shape dimensions × width, `workers` of shape workers × width."""

    encoder: NDArray[np.float64]
    workers: NDArray[np.float64]

    def route(self, vectors: Vectors) -> NDArray[np.intp]:
        """Return the index of the worker with the largest cosine similarity, for each question."""
        directions = self.workers / np.linalg.norm(self.workers, axis=1, keepdims=True)
        return np.asarray(np.argmax(_with_bias(vectors) @ self.encoder @ directions.T, axis=1))

    def mean_score(self, vectors: Vectors, scores: NDArray[np.float64]) -> float:
        """Return the mean score of the chosen workers on these questions; 0 if no such score is known."""
        routed = scores[np.arange(len(vectors)), self.route(vectors)]
        known = routed[~np.isnan(routed)]
        return float(known.mean()) if len(known) else 0.0


def train_router(vectors: Vectors, scores: NDArray[np.float64], seed: int) -> Router:
    """Train a router on vectors (problems × dimensions) and scores (problems × workers; NaN is unknown).

    The result is reproducible for a seed. It is the router of the step that is best on the held-out problems.
    """
    import torch
    from torch.nn.functional import normalize

    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(vectors), generator=draw).numpy()
    held = order[: len(order) // HELD_OUT_EVERY]
    own = order[len(held) :]
    # Double precision keeps the choice of workers independent of the number of threads.
    inputs, known = torch.from_numpy(_with_bias(vectors[own])), torch.from_numpy(scores[own])
    encoder = torch.randn(inputs.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    workers = torch.randn(scores.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    groups = QuestionGroups.cluster(vectors[own], seed)
    optimizer = torch.optim.AdamW([encoder, workers], lr=RATE, weight_decay=DECAY)
    best: tuple[float, Router] | None = None
    for step in range(1, STEPS + 1):
        batch = torch.randint(len(inputs), (min(BATCH, len(inputs)),), generator=draw)
        similarity = normalize(inputs[batch] @ encoder, dim=1) @ normalize(workers, dim=1).T
        loss = _worker_loss(similarity, known[batch], draw)
        if not groups.is_one:
            compared = torch.cat([batch.unsqueeze(1), groups.draw_contrasts(batch, draw)], dim=1)
            loss = loss + WEIGHT * _question_loss(normalize(inputs[compared] @ encoder, dim=2))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % CHECK_EVERY == 0:
            router = Router(encoder.detach().numpy().copy(), workers.detach().numpy().copy())
            value = router.mean_score(vectors[held], scores[held])
            if best is None or value >= best[0]:
                best = (value, router)
    assert best is not None
    return best[1]


def _with_bias(vectors: Vectors) -> Vectors:
    """Append a column of ones, so that a question unlike any other goes to the most frequently chosen worker."""
    return np.hstack([vectors, np.ones((len(vectors), 1))])


def _worker_loss(similarity: Tensor, scores: Tensor, draw: Generator) -> Tensor:
    """Return the sample-LLM contrastive loss: each of the K+ best workers against the K- worst that score below ½.

    A worker with score 0 is not a positive. Ties are broken at random, so that the negatives vary if most workers fail.
    """
    import torch

    chance = 1e-6 * torch.rand(scores.shape, generator=draw, dtype=scores.dtype)
    top = (torch.nan_to_num(scores, nan=0.0) + chance).topk(min(POSITIVES, scores.shape[1]), dim=1).indices
    low = (torch.nan_to_num(scores, nan=1.0) + chance).topk(min(NEGATIVES, scores.shape[1]), dim=1, largest=False)
    is_low = scores.gather(1, low.indices) < 0.5
    worst = similarity.gather(1, low.indices).masked_fill(~is_low, -torch.inf)
    best = similarity.gather(1, top)
    against = torch.cat([best.unsqueeze(2), worst.unsqueeze(1).expand(-1, best.shape[1], -1)], dim=2)
    each = against.logsumexp(dim=2) - best
    return (each * (scores.gather(1, top) > 0)).sum(dim=1).mean()


def _question_loss(encoded: Tensor) -> Tensor:
    """Return the sample-sample contrastive loss: one question of the same group against H questions of other groups."""
    similarity = (encoded[:, :1] * encoded[:, 1:]).sum(dim=2)
    return (similarity.logsumexp(dim=1) - similarity[:, 0]).mean()


class QuestionGroups(NamedTuple):
    """Groups of similar questions, from which the loss between questions draws its examples."""

    order: Tensor
    """The indices of questions, sorted by group."""
    start: Tensor
    size: Tensor
    """For each question, the index in `order` where its group begins, and the size of its group."""

    @classmethod
    def cluster(cls, vectors: Vectors, seed: int) -> QuestionGroups:
        """Group the questions by k-means."""
        import torch
        from sklearn.cluster import KMeans

        distinct = len(np.unique(vectors, axis=0))
        groups = KMeans(min(CLUSTERS, distinct), n_init=4, random_state=seed).fit_predict(vectors)
        count = np.bincount(groups)
        start = np.cumsum(count) - count
        order = np.argsort(groups, kind="stable")
        return cls(
            *(torch.from_numpy(np.asarray(each, dtype=np.int64)) for each in (order, start[groups], count[groups]))
        )

    @property
    def is_one(self) -> bool:
        """True if all questions are in one group."""
        return int(self.size[0]) == len(self.order)

    def draw_contrasts(self, batch: Tensor, draw: Generator) -> Tensor:
        """Draw for each question one question of its own group, then H questions of other groups."""
        import torch

        start, count = self.start[batch].unsqueeze(1), self.size[batch].unsqueeze(1)
        chance = torch.rand(len(batch), 1 + NEGATIVE_QUESTIONS, generator=draw, dtype=torch.float64)
        within = start + (chance[:, :1] * count).long()
        outside = (chance[:, 1:] * (len(self.order) - count)).long()
        return self.order[torch.cat([within, outside + count * (outside >= start)], dim=1)]


@workflow_baseline(
    "RouterDC",
    position=51,
    calls_per_question=lambda workers: 1,
    source="arXiv:2409.19886 (RouterDC)",
    differences="The encoder is a linear map of TF-IDF vectors with its own learning rate, and not mDeBERTa. Questions "
    "are grouped by k-means on these vectors, without t-SNE. The score of a worker is its share of right "
    "answers for every kind of question. The training keeps the step that is best on a held-out fifth of the "
    "training questions, while the authors' code keeps the one that is best on its test sets.",
    uses_solo_responses=True,
)
def router_dc(training_data: TrainingData) -> Method:
    """A router chooses the worker by embeddings that are trained with a contrastive loss.

    It is trained on every precached sample. Raises `ValueError` if no worker has answered a problem.
    """
    embedding = QuestionEmbedding.fit(training_data.problems, training_data.seed)
    outcomes = Outcomes.from_training_data(training_data)
    there = np.flatnonzero(np.isfinite(outcomes.usd))
    router = train_router(embedding.embed(training_data.problems), outcomes.scores[:, there], training_data.seed)

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(there[worker])) for worker in router.route(embedding.embed(problems))]

    return Method.routed(route)
