"""What a training run may look like before its guards warn: the thresholds of `ops.training.guards`."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings


class Guards(Settings):
    """When a finished training run is warned of. A guard changes nothing of the run and is in no run's key.

    The last `window` steps are looked at, and held against the first as many. Shares are in [0, 1].
    """

    window: int = Field(default=10, ge=1)
    """Steps at either end, at most half of the run: of fewer, the questions that they drew say more than the policy."""
    max_invalid: float = Field(default=0.1, ge=0, le=1)
    """Completions that are no workflow: twice what the promotion gate lets pass, since training draws at a temperature
    and the gate reads as it is served."""
    max_worker_share: float = Field(default=0.75, ge=0, le=1)
    """Steps given to one worker in the domain where it is used least: beyond, it is used whatever the domain."""
    max_worker_gap: float = Field(default=0.15, ge=0, le=1)
    """Accuracy that a domain's most used worker may lack, alone, to the best one there. Not less: who prepares an
    answer for another is used without being right alone."""
    max_pattern_share: float = Field(default=0.7, ge=0, le=1)
    """Workflows of the commonest pattern: workers and access alike, whatever the question."""
    min_entropy_kept: float = Field(default=0.25, ge=0)
    """The patterns' entropy at the end by that at the beginning. A policy that learns loses some of it: quickstarts
    that came out well kept 0.41 to 0.73."""
    min_gain: float = Field(default=0.01, ge=-1, le=1)
    """Rise of the share of right answers among valid workflows: without it, the reward rose by format alone."""
    max_unscorable: float = Field(default=0.05, ge=0, le=1)
    """Rollouts of the whole run whose workers were not reached: they were partly paid for and taught nothing."""
    max_loops: float = Field(default=0.25, ge=0, le=1)
    """Recursive rounds that do nothing or harm: repeat the workflow before, or make more right answers wrong than wrong
    ones right. At inference each is a completion, and the harmful ones are calls, for nothing."""
    max_zero_variance: float = Field(default=0.8, ge=0, le=1)
    """Groups whose rewards are all alike, which teach nothing: beyond, four fifths of the money buy no gradient."""
