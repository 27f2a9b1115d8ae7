"""Power and sample size: the difference that a benchmark can detect, and the questions that a standard error needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Stratum(NamedTuple):
    """The size of a benchmark, and how often two systems differ on it."""

    n: int
    """The number of questions."""
    discordance: float
    """The mean squared difference over questions; with one repeat, the share that exactly one system answers right."""


class Components(NamedTuple):
    """The components of the variance of a system's answers."""

    between: float
    """The variance of the success rates between questions."""
    within: float
    """The mean variance p(1-p) of the repeats of a question."""


class SamplePlan(NamedTuple):
    """The cheapest sample for a wanted standard error, or the best available sample if none reaches it."""

    questions: int
    repeats: int
    standard_error: float
    reached: bool
    """Whether `standard_error` is at most the wanted one."""


WORST_CASE = Components(between=0.25, within=0.0)
"""Half of the questions always right, half always wrong: the case that needs the most questions."""


def detectable_paired(strata: Sequence[Stratum], *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the true mean difference over strata that a two-sided paired test at `alpha` detects with the given power.

    R. J. Connor, "Sample size for testing differences in proportions for the paired-sample design" (Biometrics 43,
    1987): a normal approximation with a fixed discordance. The discordance is raised to the difference where it is
    smaller. The result is NaN if the test cannot detect even a difference of 1. Raises `ValueError` without strata, or
    if a discordance is outside 0 … 1.
    """
    if not strata or any(not 0 <= stratum.discordance <= 1 or stratum.n < 1 for stratum in strata):
        raise ValueError("a detectable difference needs strata of at least one question with a discordance in 0 … 1")
    n = np.array([stratum.n for stratum in strata], dtype=float)
    discordance = np.array([stratum.discordance for stratum in strata])
    shrink = float(np.sum(1 / n)) / n.size**2
    difference = 0.0
    for _ in range(200):  # each step increases the difference, or leaves it and ends the loop
        under_null = float(np.sum(np.maximum(discordance, difference) / n)) / n.size**2
        found = _detectable(under_null, shrink, alpha, power)
        if not found > difference + 1e-9:
            break
        difference = found
    return found if not found > 1 else float("nan")


def detectable_unpaired(n: int, variance: float = 0.25, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the true difference that a z-test detects between two systems on `n` different questions each.

    `variance` is that of one question's accuracy, p(1-p) with one repeat, at the mean accuracy of the two systems. The
    result is NaN if the test cannot detect even a difference of 1. Raises `ValueError` without questions.
    """
    if n < 1:
        raise ValueError("a detectable difference needs at least one question")
    difference = _detectable(2 * variance / n, 1 / (2 * n), alpha, power)
    return difference if not difference > 1 else float("nan")


def _detectable(under_null: float, shrink: float, alpha: float, power: float) -> float:
    """Solve δ = z(α/2)·√V + z(power)·√(V - shrink·δ²) for δ; V is the squared standard error under no difference."""
    from scipy.special import ndtri

    level, sure = float(-ndtri(alpha / 2)) * math.sqrt(under_null), float(ndtri(power))
    leading = 1 + sure**2 * shrink
    discriminant = level**2 - leading * (level**2 - sure**2 * under_null)
    if discriminant < 0:
        return float("nan")
    return (level + math.copysign(math.sqrt(discriminant), sure)) / leading


def variance_components(questions: Sequence[Sequence[float]]) -> Components:
    """Estimate the variance between and within questions from pilot outcomes, one sequence of repeats per question.

    The method is the one-way analysis of variance with unequal groups. Without repeats, the two components cannot be
    separated and the whole variance counts as between questions, which never underestimates the questions needed.
    Raises `ValueError` on fewer than two questions.
    """
    groups = [np.asarray(repeats, dtype=float) for repeats in questions if len(repeats)]
    if len(groups) < 2:
        raise ValueError("a pilot needs at least two questions")
    sizes = np.array([group.size for group in groups])
    means, total = np.array([group.mean() for group in groups]), int(sizes.sum())
    if total == len(groups):
        return Components(between=float(means.var(ddof=1)), within=0.0)
    within = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups) / (total - len(groups))
    grand = float(np.sum(sizes * means)) / total
    across = float(np.sum(sizes * (means - grand) ** 2)) / (len(groups) - 1)
    typical = (total - float(np.sum(sizes**2)) / total) / (len(groups) - 1)
    return Components(between=max(0.0, (across - within) / typical), within=within)


def sample_for(
    standard_error: float, available: int, components: Components = WORST_CASE, *, most_repeats: int = 16
) -> SamplePlan:
    """Return the smallest sample whose mean has the wanted standard error, from `available` questions.

    The squared error is (between + within / repeats) / questions, so a new question is worth more than a repeat:
    questions are repeated only when all are used. Repeats do not reduce the variance between questions; `reached` says
    whether the sample suffices. The questions are treated as a sample of a larger population, which is conservative for
    the accuracy on this set of questions. Raises `ValueError` if the standard error is not positive or there are no
    questions.
    """
    if not standard_error > 0 or available < 1 or most_repeats < 1:
        raise ValueError("a sample needs a positive standard error, a question and a repeat")
    between, within = components
    questions = _ceil((between + within) / standard_error**2)
    if questions <= available:
        return _sample(max(questions, 1), 1, standard_error, components)
    spare = available * standard_error**2 - between
    repeats = _ceil(within / spare) if spare > 0 else most_repeats if within > 0 else 1
    return _sample(available, min(max(repeats, 1), most_repeats), standard_error, components)


def _ceil(number: float) -> int:
    return math.ceil(number - 1e-9)  # 0.25 / 0.05² must give 100 in spite of rounding


def _sample(questions: int, repeats: int, wanted: float, components: Components) -> SamplePlan:
    error = math.sqrt((components.between + components.within / repeats) / questions)
    return SamplePlan(questions, repeats, error, error <= wanted * (1 + 1e-9))
