"""The part of a recipe that is about asking workers: precaching and the budget."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ops.config.base import Settings


class Precaching(Settings):
    samples: int = Field(default=1, ge=1)
    """Responses per worker and problem (sample indices 0 … samples-1)."""


class Replay(Settings):
    """A rehearsal: workers answer from what was recorded, and nothing is paid for."""

    match: Literal["prompt", "problem"] = "prompt"
    """"prompt": exactly the same messages, settings and sample were recorded. "problem": otherwise the worker's answer
    to that problem alone, whatever the subtask."""
    on_miss: Literal["unscorable", "live"] = "unscorable"
    """For a call that was never recorded: leave the rollout out ("unscorable"), or make the call ("live"), which
    costs."""


class Budget(Settings):
    run_usd: float = Field(default=10.0, gt=0)
    """Maximum that one run may spend on workers; each call reserves its worst case first."""
    month_usd: float | None = Field(default=None, gt=0)
    """Maximum that all runs of a calendar month (UTC) may spend. None: no limit."""
