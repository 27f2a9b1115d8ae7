"""Which of a worker's answers to one prompt a rollout draws on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ops.config import Grpo


class WorkerSamples(NamedTuple):
    """How many answers a prompt has ("every": each rollout its own), for groups of so many rollouts."""

    answers: int | Literal["every"] = 1
    group: int = 1
    rank: int = 0

    @classmethod
    def wanted(cls, grpo: Grpo) -> WorkerSamples:
        """What the settings say, in this process."""
        return cls(grpo.worker_samples, grpo.rollouts_per_question, int(os.environ.get("RANK", "0")))

    def of(self, epoch: int, places: Iterable[int], rows: int | None = None) -> list[int]:
        """The sample index of the rollouts at these places of this process's `rows` (None: these are all of them).

        A problem is asked once an epoch, so that a rollout's place in its group makes its index its own. Groups stand
        together, over all ranks, and may lie on two of them.
        """
        here = list(places)
        if self.answers != "every":
            return [epoch % self.answers] * len(here)
        before = self.rank * (len(here) if rows is None else rows)
        return [epoch * self.group + (before + place) % self.group for place in here]


ONE = WorkerSamples()
"""One answer to a prompt, for ever."""
