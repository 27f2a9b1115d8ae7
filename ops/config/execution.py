"""The part of a recipe that says how workflows are run: limits, what is kept to look at."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, model_validator

from ops.config.base import Settings

STORED = {"stored": True}
"""Validation context of what a checkout wrote itself: policies and runs outlive settings."""
_SETTINGS_OF_BEFORE = {"recursion"}
"""In cards, plans and snapshots of earlier checkouts."""


class Execution(Settings):
    """How a workflow is run."""

    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds of a workflow's own work, along its longest chain of steps: waits for slots and limits do not count.
    What takes longer is timed out, which is unscorable."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """Longest response, in tokens, that later steps are shown; longer ones lose their middle. None: whole."""
    traces: int = Field(default=2, ge=0)
    """Executions per benchmark whose traces an evaluation exports to MLflow."""

    @model_validator(mode="before")
    @classmethod
    def _readable_for_ever(cls, values: Any, info: ValidationInfo) -> Any:
        if info.context is not STORED or not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in _SETTINGS_OF_BEFORE}

    @property
    def what_answers_depend_on(self) -> dict[str, object]:
        """The settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}
