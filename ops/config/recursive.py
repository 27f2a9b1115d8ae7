"""The part of a recipe that trains a Conductor to work in rounds, and how far those may go when it is used."""

from __future__ import annotations

from math import gcd

from pydantic import Field

from ops.config.base import Settings
from ops.config.stage import Stage
from ops.config.training import Grpo


class RoundLimits(Settings):
    """What bounds a Conductor's rounds where it is evaluated or served (Section 3.2 of arXiv:2512.04388)."""

    rounds: int = Field(default=1, ge=0)
    """Maximum number of rounds after the first."""
    calls_ratio: float = Field(default=2.0, ge=1)
    """All rounds of a set of questions together make at most this many times the calls of their first rounds."""
    answer_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of the final response that the Conductor sees; longer ones lose their middle. None: whole."""


class Recursive(Stage):
    """GRPO from the last policy in which half of a question's rollouts go on from the answers of the other half.

    Section 3.2 of arXiv:2512.04388: 20 iterations on 175 problems of LiveCodeBench and 175 of RLPR.
    """

    gamma: float = Field(default=0.25, ge=0, le=1)
    """Weight of the second round's outcome in the reward of the first."""
    benchmarks: tuple[str, ...] | None = None
    """Benchmarks of the mix whose problems are used. None: all."""
    per_benchmark: int | None = Field(default=None, ge=1)
    """Maximum number of problems per benchmark, drawn by the recipe's seed. None: all."""
    limits: RoundLimits = RoundLimits()
    """Limits on rounds that evaluation and serving apply to the trained policy."""
    rollouts_per_question: int | None = Field(default=None, ge=4)
    """Of both rounds together: even."""

    def grpo(self, before: Grpo) -> Grpo:
        """The settings of this stage, where `before` are those of the ones before: a round waits for the answers of the
        one before it, so that nothing overlaps. Raises `ValidationError` where they do not fit together, `ValueError`
        where rollouts cannot be halved."""
        grpo = super().grpo(before.model_copy(update={"staleness": 0}))
        if grpo.rollouts_per_question % 2 or grpo.rollouts_per_step // grpo.processes % 2:
            raise ValueError(
                f"rollouts_per_question = {grpo.rollouts_per_question} on {grpo.processes} processes cannot be halved: "
                "half of a question's rollouts are recursive rounds"
            )
        least = grpo.processes // gcd(grpo.rollouts_per_question // 2, grpo.processes)
        if grpo.refill and grpo.refills_per_step < least:
            raise ValueError(
                f"refill = {grpo.refill:g} of {grpo.questions_per_step} questions is fewer than the {least} whose two "
                f"rounds {grpo.processes} processes can share alike: raise it, or set it to 0"
            )
        return grpo
