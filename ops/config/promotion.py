"""The promotion gate: what `config/promotion.yaml` may say."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class PromotionGate(Settings):
    """When a challenger becomes the champion."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Of all looks at one champion together, two-sided: a challenger that is worse than a bound below allows takes
    the champion's place with a chance of at most (1 - confidence) / 2, however often another one is tried."""
    planned_looks: int | None = Field(default=None, ge=1)
    """Challengers that are judged against one champion, where that is known: each has the same part of that chance,
    and a later one is refused. None: look k has 1/(k·(k+1)) of it, without an end."""
    min_gain_over_best_worker: float = Field(default=0.0, ge=-1, le=1)
    """Accuracy (0–1) by which the mean must exceed the best single worker's: lower end of the score interval."""
    max_loss_against_champion: float = Field(default=0.01, ge=0)
    """The score interval's lower end against the champion may not fall below minus this."""
    max_benchmark_loss: float = Field(default=0.05, ge=0)
    """No benchmark may be worse than the champion's by more than this."""
    max_cost_ratio: float = Field(default=1.5, gt=0)
    """USD per question against the champion's."""
    max_latency_ratio: float = Field(default=1.5, gt=0)
    min_format_compliance: float = Field(default=0.95, ge=0, le=1)
    min_paired_share: float = Field(default=0.9, gt=0, le=1)
    """Share of the other side's questions that both scored; below it the two cannot be compared."""
