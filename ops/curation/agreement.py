"""How far workers agree on a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from ops.core.problem import Problem
from ops.curation.signal import Tallies

Agreement = Literal["all", "some", "none", "unmeasured"]
"""Which workers solve a problem alone: all of them in every sample, some, none; or nobody was asked."""


def agreement(problem: Problem, tallies: Tallies) -> Agreement:
    """How far the measured workers agree on `problem`."""
    measured = tallies.get(problem.key, {}).values()
    if not measured:
        return "unmeasured"
    if all(tally.right >= tally.samples for tally in measured):
        return "all"
    return "some" if any(tally.right > 0 for tally in measured) else "none"


def agreements(problems: Sequence[Problem], tallies: Tallies) -> Counter[Agreement]:
    """How many problems fall in each class."""
    return Counter(agreement(problem, tallies) for problem in problems)
