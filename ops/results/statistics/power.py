"""Statistical power: the difference that a paired test on given benchmarks can detect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Stratum(NamedTuple):
    """The number of questions of a benchmark, and how often two systems differ on them."""

    n: int
    """The number of questions."""
    discordance: float
    """The mean squared difference over questions. With one repeat it is the share of questions that exactly one system
    answers correctly."""


def detectable_difference(strata: Sequence[Stratum], *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the true mean difference over strata that a two-sided paired test at the level `alpha` detects with this
    power.

    The method is that of R. J. Connor, "Sample size for testing differences in proportions for the paired-sample
    design" (Biometrics 43, 1987): a normal approximation with a fixed discordance, which is raised to the difference if
    it is smaller. The result is a share, and NaN if the test cannot detect even a difference of 1. Raises `ValueError`
    if there are no strata, or if a discordance is outside [0, 1].
    """
    if not strata or any(not 0 <= stratum.discordance <= 1 or stratum.n < 1 for stratum in strata):
        raise ValueError("a detectable difference needs strata of at least one question with a discordance in 0 … 1")
    n = np.array([stratum.n for stratum in strata], dtype=float)
    discordance = np.array([stratum.discordance for stratum in strata])
    shrink = float(np.sum(1 / n)) / n.size**2
    difference = 0.0
    for _ in range(200):  # each iteration increases the difference until it converges
        under_null = float(np.sum(np.maximum(discordance, difference) / n)) / n.size**2
        found = _solve_detectable(under_null, shrink, alpha, power)
        if not found > difference + 1e-9:
            break
        difference = found
    return found if not found > 1 else float("nan")


def _solve_detectable(under_null: float, shrink: float, alpha: float, power: float) -> float:
    """Solve δ = z(α/2)·√V + z(power)·√(V − shrink·δ²) for δ, where V is the squared standard error without a
    difference."""
    from scipy.special import ndtri

    level, sure = float(-ndtri(alpha / 2)) * math.sqrt(under_null), float(ndtri(power))
    leading = 1 + sure**2 * shrink
    discriminant = level**2 - leading * (level**2 - sure**2 * under_null)
    if discriminant < 0:
        return float("nan")
    return (level + math.copysign(math.sqrt(discriminant), sure)) / leading
