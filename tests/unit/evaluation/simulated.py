"""A world in which the true difference of two systems is known, questions differ, and repeats are noisy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class World(NamedTuple):
    """Answers are right with the logistic of difficulty (per question) + liking (per question and system) + skill."""

    benchmarks: int
    questions: int
    """Of each benchmark."""
    repeats: int
    difficulty: float = 1.5
    """Standard deviation over questions, which both systems share."""
    liking: float = 0.7
    """Standard deviation over questions of what one system alone finds easy."""

    def accuracies(self, skills: tuple[float, ...], simulations: int, seed: int) -> list[Array]:
        """For each system, means over repeats: (simulations, benchmarks, questions); questions are drawn anew."""
        rng = np.random.default_rng(seed)
        shape = (simulations, self.benchmarks, self.questions)
        shared = rng.normal(0.0, self.difficulty, shape)
        rates = [_logistic(shared + rng.normal(0.0, self.liking, shape) + skill) for skill in skills]
        return [rng.binomial(self.repeats, rate) / self.repeats for rate in rates]

    def truth(self, skill: float) -> float:
        """The accuracy of a system on all questions there could be, by quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        spread = np.hypot(self.difficulty, self.liking)
        return float(weights @ _logistic(spread * nodes + skill) / weights.sum())


def _logistic(logits: Array) -> Array:
    rates: Array = 1 / (1 + np.exp(-logits))
    return rates


def within(simulations: int, share: float) -> float:
    """Four standard errors of a simulated share: what chance may do to it."""
    return 4 * float(np.sqrt(share * (1 - share) / simulations))
