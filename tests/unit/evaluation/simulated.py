"""Simulated systems with a known true difference, varying questions and noisy repeats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class World(NamedTuple):
    """An answer is correct with the logistic of difficulty (per question) + liking (per question and system) +
    skill."""

    benchmarks: int
    questions: int
    """Number of questions per benchmark."""
    repeats: int
    difficulty: float = 1.5
    """Standard deviation over questions, common to both systems."""
    liking: float = 0.7
    """Standard deviation over questions, separate for each system."""

    def accuracies(self, skills: tuple[float, ...], simulations: int, seed: int) -> list[Array]:
        """Return for each system means over repeats: (simulations, benchmarks, questions), with newly drawn
        questions."""
        rng = np.random.default_rng(seed)
        shape = (simulations, self.benchmarks, self.questions)
        shared = rng.normal(0.0, self.difficulty, shape)
        rates = [_logistic(shared + rng.normal(0.0, self.liking, shape) + skill) for skill in skills]
        return [rng.binomial(self.repeats, rate) / self.repeats for rate in rates]

    def truth(self, skill: float) -> float:
        """Return a system's accuracy on all possible questions, by quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        spread = np.hypot(self.difficulty, self.liking)
        return float(weights @ _logistic(spread * nodes + skill) / weights.sum())


def _logistic(logits: Array) -> Array:
    rates: Array = 1 / (1 + np.exp(-logits))
    return rates


def within(simulations: int, share: float) -> float:
    """Return four standard errors of a simulated share, as a tolerance."""
    return 4 * float(np.sqrt(share * (1 - share) / simulations))
