"""What a further stage of training says of its own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ops.config.base import Settings
from ops.config.training import Grpo


class Stage(Settings):
    """GRPO once more, from the last policy: what differs from `grpo`. None: nothing does."""

    steps: int = Field(default=20, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, gt=0)
    questions_per_step: int | None = Field(default=None, ge=1)
    rollouts_per_question: int | None = Field(default=None, ge=2)
    micro_batch: int | None = Field(default=None, ge=1)

    def grpo(self, before: Grpo) -> Grpo:
        """The settings of this stage, where `before` are those of the one before. Raises `ValidationError` where they
        do not fit together."""
        own: dict[str, Any] = self.model_dump(include=set(Stage.model_fields), exclude_none=True)
        return Grpo.model_validate(before.model_dump() | own)
