"""Selectors: one decorated function per file in `selectors`, their registry, and the forecast that two of them use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.config import Curation
from ops.core.problem import Problem
from ops.core.registry import Registry
from ops.curation.signal import Tallies, group_signals, rescue

GROUP = 64
"""Rollouts per question in the paper (arXiv:2512.04388, A.1)."""


@dataclass(frozen=True)
class SelectionEvidence:
    """The data that a selector may use besides the questions; `group` is the number of rollouts per question."""

    curation: Curation
    seed: int
    tallies: Tallies | None = None
    """The workers' results; None if no worker has answered yet, as when the shortlist is made."""
    group: int = GROUP


class Weighing(NamedTuple):
    """The weights (0-1, by problem's key) of a selector, and their title and explanation in the data card."""

    title: str
    explain: Callable[[SelectionEvidence], str]
    weigh: Callable[[Sequence[Problem], SelectionEvidence], Mapping[str, float]]


Choose = Callable[[Sequence[Problem], int, SelectionEvidence], list[Problem]]
"""(one domain's problems, places, evidence) → at most `places` of them, in the given order."""


@dataclass(frozen=True)
class Selector:
    """A method that chooses the problems of a domain, for the shortlist (without tallies) and for the mix."""

    name: str
    choose: Choose
    why: str
    """What is preferred and why, as a paragraph of the data card."""
    reads_responses: bool
    """Whether the mix depends on the workers' responses; otherwise it can be made before any worker is called."""
    weighing: Weighing | None


def selector(
    why: str, *, reads_responses: bool = False, weighing: Weighing | None = None
) -> Callable[[Choose], Selector]:
    """Make a function a selector with the function's name, which is also the name of its file."""

    def register(choose: Choose) -> Selector:
        return Selector(choose.__name__, choose, why, reads_responses, weighing)

    return register


SELECTORS = Registry("ops.curation.selectors", Selector)


def signals(problems: Sequence[Problem], evidence: SelectionEvidence) -> dict[str, float]:
    """Return problem's key → the forecast probability that a group on it disagrees (`group_signals`)."""
    second = rescue(evidence.curation.rescued)
    keys = [problem.key for problem in problems]
    return group_signals(evidence.tallies or {}, evidence.group, second, problems=keys)


def _explained(evidence: SelectionEvidence) -> str:
    return (
        f"The probability that of {evidence.group} rollouts on a problem not all are right and not "
        "all wrong, from the workers' pooled pass rates under a prior fitted to each benchmark. Chains of workers are "
        f"assumed to rescue {evidence.curation.rescued:.0%} of failing rollouts on average; that is not measured."
    )


FORECAST = Weighing("Forecast signal", _explained, signals)
