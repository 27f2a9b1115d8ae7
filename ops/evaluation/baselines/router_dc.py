"""RouterDC: a question goes to the worker whose learned vector is nearest to the question's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.core.problem import Problem
from ops.evaluation.baseline import asking
from ops.evaluation.baselines._embedding import QuestionEmbedding, Vectors
from ops.evaluation.baselines._outcomes import Outcomes
from ops.evaluation.method import Known, Method
from ops.workflow.grammar import Workflow

if TYPE_CHECKING:
    from torch import Generator, Tensor

POSITIVES = NEGATIVES = 3
"""K+ and K-: the workers of a question that its vector is drawn to and pushed away from, at most."""
CLUSTERS, OUTSIDERS = 5, 3
"""N groups of questions; H questions of other groups that one is pushed away from."""
WEIGHT = 1.0
"""λ of the loss between questions."""
STEPS, BATCH, RATE, DECAY, WIDTH = 1000, 64, 5e-3, 0.01, 128
"""Of AdamW, and the width of the vectors. The paper's rate is that of a pretrained encoder."""
HELD_OUT, CHECK_EVERY = 5, 50
"""One problem in `HELD_OUT` is held out; steps between two evaluations on those."""


class Router(NamedTuple):
    """Dimensions × width, and workers × width."""

    encoder: NDArray[np.float64]
    workers: NDArray[np.float64]

    def route(self, vectors: Vectors) -> NDArray[np.intp]:
        """The ordinal of the worker with the largest cosine, for each question."""
        directions = self.workers / np.linalg.norm(self.workers, axis=1, keepdims=True)
        return np.asarray(np.argmax(_with_bias(vectors) @ self.encoder @ directions.T, axis=1))

    def value(self, vectors: Vectors, scores: NDArray[np.float64]) -> float:
        """Mean score where it sends these questions; 0 where nothing is known of that."""
        routed = scores[np.arange(len(vectors)), self.route(vectors)]
        known = routed[~np.isnan(routed)]
        return float(known.mean()) if len(known) else 0.0


def train(vectors: Vectors, scores: NDArray[np.float64], seed: int) -> Router:
    """Learn from problems × dimensions and problems × workers (NaN: not known); the same seed, the same router.

    A part of the problems is held out, and the step counts at which the router is best on it.
    """
    import torch
    from torch.nn.functional import normalize

    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(vectors), generator=draw).numpy()
    held = order[: len(order) // HELD_OUT]
    own = order[len(held) :]
    # In double precision how many threads add up does not decide where a question goes.
    inputs, known = torch.from_numpy(_with_bias(vectors[own])), torch.from_numpy(scores[own])
    encoder = torch.randn(inputs.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    workers = torch.randn(scores.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    groups = Groups.of(vectors[own], seed)
    optimizer = torch.optim.AdamW([encoder, workers], lr=RATE, weight_decay=DECAY)
    best: tuple[float, Router] | None = None
    for step in range(1, STEPS + 1):
        batch = torch.randint(len(inputs), (min(BATCH, len(inputs)),), generator=draw)
        similarity = normalize(inputs[batch] @ encoder, dim=1) @ normalize(workers, dim=1).T
        loss = _worker_loss(similarity, known[batch], draw)
        if not groups.is_one:
            compared = torch.cat([batch.unsqueeze(1), groups.others(batch, draw)], dim=1)
            loss = loss + WEIGHT * _question_loss(normalize(inputs[compared] @ encoder, dim=2))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % CHECK_EVERY == 0:
            router = Router(encoder.detach().numpy().copy(), workers.detach().numpy().copy())
            value = router.value(vectors[held], scores[held])
            if best is None or value >= best[0]:
                best = (value, router)
    assert best is not None
    return best[1]


def _with_bias(vectors: Vectors) -> Vectors:
    """A last column of ones, by which a question like no other goes to whom most go."""
    return np.hstack([vectors, np.ones((len(vectors), 1))])


def _worker_loss(similarity: Tensor, scores: Tensor, draw: Generator) -> Tensor:
    """Sample-LLM contrastive loss: each of the K+ best against the K- worst that score below ½.

    Who scores 0 is no positive. Of equals a random choice: where most workers fail, others are the worst each time.
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
    """Sample-sample contrastive loss: each against one of its group and H of other groups."""
    similarity = (encoded[:, :1] * encoded[:, 1:]).sum(dim=2)
    return (similarity.logsumexp(dim=1) - similarity[:, 0]).mean()


class Groups(NamedTuple):
    """Groups of like questions, one after the other."""

    order: Tensor
    """Indices of questions."""
    start: Tensor
    size: Tensor
    """By question: where its group begins in `order`, and how many it has."""

    @classmethod
    def of(cls, vectors: Vectors, seed: int) -> Groups:
        """By k-means."""
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
        """No question is outside of another's group."""
        return int(self.size[0]) == len(self.order)

    def others(self, batch: Tensor, draw: Generator) -> Tensor:
        """For each question one of its own group, then H of others."""
        import torch

        start, count = self.start[batch].unsqueeze(1), self.size[batch].unsqueeze(1)
        chance = torch.rand(len(batch), 1 + OUTSIDERS, generator=draw, dtype=torch.float64)
        within = start + (chance[:, :1] * count).long()
        outside = (chance[:, 1:] * (len(self.order) - count)).long()
        return self.order[torch.cat([within, outside + count * (outside >= start)], dim=1)]


@asking(
    "RouterDC",
    place=51,
    calls=lambda workers: 1,
    source="arXiv:2409.19886 (RouterDC)",
    differs="The encoder is one linear map of TF-IDF vectors, not mDeBERTa, and learns at a rate of its own; groups "
    "are k-means on these vectors without t-SNE; scores are shares of right samples for every kind of question; the "
    "step counts that is best on a held-out fifth of the mix, where the authors' code keeps the best on its test sets.",
)
def router_dc(known: Known) -> Method:
    """Learned from every precached sample. Raises `ValueError` where there is no answer."""
    embedding, outcomes = QuestionEmbedding.fit(known.problems, known.seed), Outcomes.of(known)
    there = np.flatnonzero(np.isfinite(outcomes.usd))
    router = train(embedding.of(known.problems), outcomes.scores[:, there], known.seed)

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(there[worker])) for worker in router.route(embedding.of(problems))]

    return Method.routed(route)
