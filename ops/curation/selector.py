"""What a selector is: one decorated function a file in `selectors`, their registry, and the forecast that two go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ops.config import Curation
from ops.core.problem import Problem
from ops.core.registry import Registry
from ops.curation.signal import Tallies, group_signals, rescue

GROUP = 64
"""Rollouts a question in the paper (arXiv:2512.04388, A.1)."""


@dataclass(frozen=True)
class SelectionEvidence:
    """What a selector may go by beside the questions themselves; `group` is the number of rollouts a question."""

    curation: Curation
    seed: int
    tallies: Tallies | None = None
    """None: no worker was asked yet, as when the shortlist is made."""
    group: int = GROUP


class Weighing(NamedTuple):
    """The weights (0-1, by problem's key) that a selector goes by, and how the data card entitles and explains them."""

    title: str
    explain: Callable[[SelectionEvidence], str]
    weigh: Callable[[Sequence[Problem], SelectionEvidence], Mapping[str, float]]


Choose = Callable[[Sequence[Problem], int, SelectionEvidence], list[Problem]]
"""(one domain's problems, places, evidence) → at most `places` of them, in the order given."""


@dataclass(frozen=True)
class Selector:
    """A method that chooses the problems of a domain, for the shortlist (without tallies) and for the mix."""

    name: str
    choose: Choose
    why: str
    """What is preferred and why, a paragraph of the data card."""
    reads_responses: bool
    """Whether the mix is chosen by what workers answered; if not, it can be made before any is asked."""
    weighing: Weighing | None


def selector(
    why: str, *, reads_responses: bool = False, weighing: Weighing | None = None
) -> Callable[[Choose], Selector]:
    """Make a function a selector of its own name, which is its file's."""

    def register(choose: Choose) -> Selector:
        return Selector(choose.__name__, choose, why, reads_responses, weighing)

    return register


SELECTORS = Registry("ops.curation.selectors", Selector)


def signals(problems: Sequence[Problem], evidence: SelectionEvidence) -> dict[str, float]:
    """Problem's key → the forecast that a group on it disagrees (`group_signals`)."""
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
