"""The part of a recipe that trains a Conductor further on random subsets of its pool."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from ops.config.base import Settings
from ops.config.training import Grpo


class Adaptive(Settings):
    """GRPO from the Conductor's policy while each question offers a random part of the workers.

    Section 3.2 of arXiv:2512.04388, which does not publish how many workers are offered, nor for how many steps.
    """

    steps: int = Field(default=20, ge=1)
    smallest: int = Field(default=1, ge=1)
    """Workers of the smallest subset."""
    largest: int | None = Field(default=None, ge=1)
    """Workers of the largest one; None: the whole pool. Every size between the two is as likely."""
    reshuffle: bool = False
    """False: a worker keeps the ordinal that the Conductor has learnt, and those that are left out are missing in the
    list. True: the subset is numbered from 0, in an order of each question's own; then only cards can say who is who
    (`prompting.cards`)."""
    learning_rate: float | None = Field(default=None, gt=0)
    """This and what follows: None is `grpo`'s."""
    temperature: float | None = Field(default=None, gt=0)
    questions_per_step: int | None = Field(default=None, ge=1)
    rollouts_per_question: int | None = Field(default=None, ge=2)
    micro_batch: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _sizes_in_order(self) -> Self:
        if self.largest is not None and self.largest < self.smallest:
            raise ValueError(f"largest = {self.largest} is below smallest = {self.smallest}")
        return self

    def grpo(self, before: Grpo) -> Grpo:
        """The settings of this stage, where `before` are those of the one before. Raises `ValidationError` where they
        do not fit together."""
        own: dict[str, Any] = self.model_dump(
            include={
                "steps",
                "learning_rate",
                "temperature",
                "questions_per_step",
                "rollouts_per_question",
                "micro_batch",
            },
            exclude_none=True,
        )
        return Grpo.model_validate(before.model_dump() | own)
