"""The part of a recipe that trains a Conductor further on random subsets of its pool."""

from __future__ import annotations

from random import Random
from typing import Self

from pydantic import Field, model_validator

from ops.config.stage import Stage


class Adaptive(Stage):
    """GRPO from the Conductor's policy while each question offers a random part of the workers.

    Section 3.2 of arXiv:2512.04388, which does not publish how many workers are offered, nor for how many steps.
    """

    smallest: int = Field(default=1, ge=1)
    """Workers in the smallest subset."""
    largest: int | None = Field(default=None, ge=1)
    """Workers in the largest subset; None: the whole pool. All sizes are equally likely."""
    reshuffle: bool = False
    """False: workers keep their ordinals, and absent ones are missing from the list. True: the subset is numbered from
    0 in random order, which needs worker descriptions (`prompting.cards`)."""

    @model_validator(mode="after")
    def _sizes_in_order(self) -> Self:
        if self.largest is not None and self.largest < self.smallest:
            raise ValueError(f"largest = {self.largest} is below smallest = {self.smallest}")
        return self

    def drawn(self, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
        """The ordinals of `workers` that the problem of this key offers in this epoch: the same whenever it is asked.

        How many are offered is drawn first, every size alike; of fewer workers than a size names, all of them. In
        order, or shuffled where the stage reshuffles.
        """
        random = Random(f"{seed} {epoch} {problem}")
        most = min(self.largest or workers, workers)
        ordinals = random.sample(range(workers), random.randint(min(self.smallest, most), most))
        return tuple(ordinals if self.reshuffle else sorted(ordinals))
