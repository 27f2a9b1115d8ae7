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
STEPS, BATCH, RATE, DECAY, WIDTH = 1000, 64, 1e-3, 0.01, 128
"""Of AdamW, and the width of the vectors. The paper's rate is that of a pretrained encoder."""


class Router(NamedTuple):
    """Dimensions × width, and workers × width."""

    encoder: NDArray[np.float64]
    workers: NDArray[np.float64]

    def route(self, vectors: Vectors) -> NDArray[np.intp]:
        """The ordinal of the worker with the largest cosine, for each question."""
        directions = self.workers / np.linalg.norm(self.workers, axis=1, keepdims=True)
        return (_with_bias(vectors) @ self.encoder @ directions.T).argmax(axis=1)


def train(vectors: Vectors, scores: NDArray[np.float64], seed: int) -> Router:
    """Learn from problems × dimensions and problems × workers (NaN: not known); the same seed, the same router."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    # In double precision how many threads add up does not decide where a question goes.
    inputs, known = torch.from_numpy(_with_bias(vectors)), torch.from_numpy(scores)
    encoder = torch.randn(inputs.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    workers = torch.randn(scores.shape[1], WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    groups = torch.from_numpy(_clusters(vectors, seed))
    optimizer = torch.optim.AdamW([encoder, workers], lr=RATE, weight_decay=DECAY)
    for _ in range(STEPS):
        batch = torch.randint(len(inputs), (min(BATCH, len(inputs)),), generator=draw)
        encoded = torch.nn.functional.normalize(inputs @ encoder, dim=1)
        similarity = encoded[batch] @ torch.nn.functional.normalize(workers, dim=1).T
        loss = _worker_loss(similarity, known[batch], draw) + WEIGHT * _question_loss(encoded, groups, batch, draw)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Router(encoder.detach().numpy(), workers.detach().numpy())


def _with_bias(vectors: Vectors) -> Vectors:
    """A last column of ones, by which a question like no other goes to whom most go."""
    return np.hstack([vectors, np.ones((len(vectors), 1))])


def _worker_loss(similarity: Tensor, scores: Tensor, draw: Generator) -> Tensor:
    """Sample-LLM contrastive loss: each of the K+ best against the K- worst that score below ½; Equation 4.

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


def _question_loss(encoded: Tensor, groups: Tensor, batch: Tensor, draw: Generator) -> Tensor:
    """Sample-sample contrastive loss: one of the same group against H of other groups; Equation 5."""
    import torch

    same = groups[batch].unsqueeze(1) == groups
    if bool(same.all()):
        return torch.zeros((), dtype=encoded.dtype)
    others = [torch.multinomial(same.double(), 1, generator=draw)]
    others.append(torch.multinomial((~same).double(), OUTSIDERS, replacement=True, generator=draw))
    similarity = (encoded[batch].unsqueeze(1) * encoded[torch.cat(others, dim=1)]).sum(dim=2)
    return (similarity.logsumexp(dim=1) - similarity[:, 0]).mean()


def _clusters(vectors: Vectors, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0))
    groups = KMeans(min(CLUSTERS, distinct), n_init=4, random_state=seed).fit_predict(vectors)
    return groups.astype(np.int64)


@asking(
    "RouterDC",
    place=51,
    calls=lambda workers: 1,
    source="arXiv:2409.19886, Section 3",
    differs="The encoder is one linear map of TF-IDF vectors, not mDeBERTa, and learns at a rate of its own; groups are "
    "k-means on these vectors without t-SNE; scores are shares of right samples for every kind of question; the last "
    "step counts, where the authors' code keeps the step that is best on its test sets.",
)
def router_dc(known: Known) -> Method:
    """Learned from every precached sample. Raises `ValueError` where nobody has answered."""
    embedding, outcomes = QuestionEmbedding.fit(known.problems, known.seed), Outcomes.of(known)
    there = np.flatnonzero(np.isfinite(outcomes.usd))
    router = train(embedding.of(known.problems), outcomes.scores[:, there], known.seed)

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [Workflow.single(int(there[worker])) for worker in router.route(embedding.of(problems))]

    return Method.routed(route)
