"""Selectors, which choose problems: one decorated function per file in `selectors`, their registry, and a shared
forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.config import Curation
from ops.core.problem import Problem
from ops.core.registry import Registry
from ops.curation.training_signal import Tallies, estimate_group_signals, make_rescue_prior

PAPER_ROLLOUTS_PER_QUESTION = 64
"""The number of rollouts per question in the paper (arXiv:2512.04388, A.1)."""


@dataclass(frozen=True)
class SelectionEvidence:
    """The data that a selector may use besides the questions."""

    curation: Curation
    seed: int
    tallies: Tallies | None = None
    """The workers' results; None if no worker has answered yet, as for the shortlist."""
    rollouts_per_question: int = PAPER_ROLLOUTS_PER_QUESTION


class Weighting(NamedTuple):
    """The weights of a selector (0 to 1, by the problem's key), with their title and explanation in the data card."""

    title: str
    explain: Callable[[SelectionEvidence], str]
    compute_weights: Callable[[Sequence[Problem], SelectionEvidence], Mapping[str, float]]


ChooseProblems = Callable[[Sequence[Problem], int, SelectionEvidence], list[Problem]]
"""The function of a selector: (one domain's problems, places, evidence) → at most `places` of them, in the given order.
"""


@dataclass(frozen=True)
class Selector:
    """A method that chooses the problems of a domain, for the shortlist (without tallies) and for the mix."""

    name: str
    choose: ChooseProblems
    description: str
    """Which problems are preferred and why, as a paragraph of the data card."""
    reads_responses: bool
    """True if the mix depends on the workers' responses; otherwise it can be made before any worker is called."""
    weighting: Weighting | None


def selector(
    description: str, *, reads_responses: bool = False, weighting: Weighting | None = None
) -> Callable[[ChooseProblems], Selector]:
    """Return a decorator that makes a function a selector with the name of the function and of its file."""

    def register(choose: ChooseProblems) -> Selector:
        return Selector(choose.__name__, choose, description, reads_responses, weighting)

    return register


SELECTORS = Registry("ops.curation.selectors", Selector)


def forecast_signals(problems: Sequence[Problem], evidence: SelectionEvidence) -> dict[str, float]:
    """Return problem's key → the forecast probability that the rollouts of a group on it differ in their rewards."""
    second = make_rescue_prior(evidence.curation.rescued)
    keys = [problem.key for problem in problems]
    return estimate_group_signals(evidence.tallies or {}, evidence.rollouts_per_question, second, problems=keys)


def _explain_forecast(evidence: SelectionEvidence) -> str:
    return (
        f"The probability that of {evidence.rollouts_per_question} rollouts on a problem not all are right and not "
        "all wrong, from the workers' pooled pass rates under a prior fitted to each benchmark. Chains of workers are "
        f"assumed to rescue {evidence.curation.rescued:.0%} of failing rollouts on average; that is not measured."
    )


SIGNAL_FORECAST = Weighting("Forecast signal", _explain_forecast, forecast_signals)
