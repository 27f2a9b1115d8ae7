"""What a benchmark of a given size can show, and how many questions a wanted standard error takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Stratum(NamedTuple):
    """A benchmark's size, and how often two systems differ on it."""

    n: int
    """Questions."""
    discordance: float
    """Mean squared difference over questions; with one repeat, the share of questions that one alone has right."""


class Components(NamedTuple):
    """Where the variance of a system's answers comes from."""

    between: float
    """Variance of the questions' own success rates."""
    within: float
    """Mean variance p(1-p) of a question's repeats."""


class SamplePlan(NamedTuple):
    """How often to ask what: the cheapest way to a standard error, or the best there is."""

    questions: int
    repeats: int
    standard_error: float
    reached: bool
    """Whether that is the one that was wanted."""


WORST_CASE = Components(between=0.25, within=0.0)
"""Half of the questions always right and the others never: the most questions that any system can need."""


def detectable_paired(strata: Sequence[Stratum], *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true mean difference over strata that a two-sided paired test at `alpha` finds with the given power.

    R. J. Connor, "Sample size for testing differences in proportions for the paired-sample design" (Biometrics 43,
    1987): a normal approximation in which the discordance stays as it is. Systems that differ
    by more than the discordance given are discordant at least so often. NaN: not even a difference of 1 is found.
    Raises `ValueError` without strata, or on a discordance outside 0 … 1.
    """
    if not strata or any(not 0 <= stratum.discordance <= 1 or stratum.n < 1 for stratum in strata):
        raise ValueError("a detectable difference needs strata of at least one question with a discordance in 0 … 1")
    n = np.array([stratum.n for stratum in strata], dtype=float)
    discordance = np.array([stratum.discordance for stratum in strata])
    shrink = float(np.sum(1 / n)) / n.size**2
    difference = 0.0
    for _ in range(200):  # each step raises it, or it stays
        under_null = float(np.sum(np.maximum(discordance, difference) / n)) / n.size**2
        found = _detectable(under_null, shrink, alpha, power)
        if not found > difference + 1e-9:
            break
        difference = found
    return found if not found > 1 else float("nan")


def detectable_unpaired(n: int, variance: float = 0.25, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference of two systems on `n` questions each, not the same ones, that a z-test finds.

    `variance`: of one question's accuracy, p(1-p) with one repeat, at the middle of the two systems. NaN: none up to
    1 is found. Raises `ValueError` without questions.
    """
    if n < 1:
        raise ValueError("a detectable difference needs at least one question")
    difference = _detectable(2 * variance / n, 1 / (2 * n), alpha, power)
    return difference if not difference > 1 else float("nan")


def _detectable(under_null: float, shrink: float, alpha: float, power: float) -> float:
    """δ = z(α/2)·√V + z(power)·√(V - shrink·δ²), V the squared standard error where there is no difference."""
    from scipy.special import ndtri

    level, sure = float(-ndtri(alpha / 2)) * math.sqrt(under_null), float(ndtri(power))
    leading = 1 + sure**2 * shrink
    discriminant = level**2 - leading * (level**2 - sure**2 * under_null)
    if discriminant < 0:
        return float("nan")
    return (level + math.copysign(math.sqrt(discriminant), sure)) / leading


def variance_components(questions: Sequence[Sequence[float]]) -> Components:
    """Between- and within-question variance of pilot outcomes, each question's repeats a sequence.

    By the analysis of variance of a one-way layout with unequal groups. Where no question was repeated, the two
    cannot be told apart and all counts as between, which asks for no fewer questions than needed. Raises `ValueError`
    on fewer than two questions.
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
    """The fewest answers whose mean has the wanted standard error, from `available` questions.

    The squared error is (between + within / repeats) / questions: the same number of answers says most when each is
    to another question. So questions are repeated only when they run out, and what questions differ by no
    repeat takes away: `reached` says whether it was enough. Questions count as drawn from
    many more: for the accuracy on this very set, it is on the safe side. Raises `ValueError` on an error that is not
    positive, or without questions.
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
    return math.ceil(number - 1e-9)  # 0.25 / 0.05² is 100, whatever floats say


def _sample(questions: int, repeats: int, wanted: float, components: Components) -> SamplePlan:
    error = math.sqrt((components.between + components.within / repeats) / questions)
    return SamplePlan(questions, repeats, error, error <= wanted * (1 + 1e-9))
