"""What a training run may look like before its guards warn: the thresholds of `ops.training.guards`."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class Guards(Settings):
    """When a finished training run is warned of. The guards change no result and are in no run's key.

    The last `window` steps are looked at, and held against the first as many. Shares are in [0, 1].
    """

    window: int = Field(default=10, ge=1)
    """Steps compared at the beginning and at the end of a run, at most half of it."""
    max_invalid: float = Field(default=0.1, ge=0, le=1)
    """Share of completions that are no workflow. Twice what the gate allows, since training samples and serving is
    greedy."""
    max_invalid_first_step: float = Field(default=0.5, ge=0, le=1)
    """Completions that are no workflow in the first step of fine-tuning a champion. Above it the training stops before
    a worker is asked; 1: it never does. The only guard that acts."""
    max_worker_share: float = Field(default=0.75, ge=0, le=1)
    """Share of steps given to one worker, in the domain that uses it least."""
    max_worker_gap: float = Field(default=0.15, ge=0, le=1)
    """Accuracy that a domain's most used worker may lack, alone, to the best one there."""
    max_pattern_share: float = Field(default=0.7, ge=0, le=1)
    """Share of workflows with the most common pattern."""
    min_entropy_kept: float = Field(default=0.25, ge=0)
    """Entropy of the patterns at the end relative to the beginning."""
    min_gain: float = Field(default=0.01, ge=-1, le=1)
    """Rise of the share of right answers among valid workflows; below it the reward rose by format alone."""
    max_unscorable: float = Field(default=0.05, ge=0, le=1)
    """Share of the run's rollouts without a reward."""
    max_loops: float = Field(default=0.25, ge=0, le=1)
    """Share of recursive rounds that repeat the workflow or turn more right answers wrong than wrong ones right."""
    max_zero_variance: float = Field(default=0.8, ge=0, le=1)
    """Share of groups with uniform rewards, which teach nothing."""
