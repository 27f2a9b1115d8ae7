"""What keeps a champion true to its pool: when to act, what pays, how drift is found. `config/retraining.yaml`."""

from __future__ import annotations

from pydantic import Field

from ops.config.base import Settings
from ops.config.pool import Pool


class Probing(Settings):
    """Questions that are asked again, night by night, to see whether a worker is still the one that was precached."""

    reference: int = Field(default=360, ge=8)
    """Questions a worker whose second answer is asked for beside the precached one: what it differs from itself by.
    Each is probed once; after the last, two new answers to each are asked for."""
    questions: int = Field(default=24, ge=1)
    """Asked of every worker in one round of probes."""
    false_alarms: float = Field(default=0.01, gt=0, lt=0.5)
    """The chance that a worker that did not change is ever called changed, however long it is probed."""


class Retraining(Settings):
    """What a change of the pool leads to. The gate itself is `config/promotion.yaml`'s."""

    settle_s: float = Field(default=60.0, ge=0)
    """The pool must read the same for so long before anything is done: ten edits in a minute are one change."""
    budget_usd: float = Field(default=5.0, ge=0)
    """What the sensor may start by itself: above this expected cost (workers' calls) it waits for a person."""
    min_oracle_rise: float = Field(default=0.02, ge=0, le=1)
    """Accuracy (0-1) by which choosing the best worker for each training problem must gain, at the interval's lower
    end, for a new worker to pay for fine-tuning."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Of the two-sided intervals by which a new worker pays."""
    slice_questions: int = Field(default=20, ge=1)
    """Questions of each benchmark that the nightly evaluation asks afresh: the next ones every night."""
    probing: Probing = Probing()


class Change(Settings):
    """Whose pool changed: the champion, and the pool that was last dealt with."""

    version: str
    """The champion's, in the registry."""
    policy: str
    """Its policy's key."""
    before: Pool
