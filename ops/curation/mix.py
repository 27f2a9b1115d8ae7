"""The training mix: `per_domain` problems a domain, chosen as the recipe's selector says.

A GRPO group teaches only when its rollouts' rewards differ. "signal" prefers problems on which they are
likely to. "disagreement" is its plain form, for a pool whose workers are right or wrong for good: a problem
that every worker solves alone rewards any well-formed workflow alike and is the first to be left out; what
some workers solve, and what none solves alone, is kept in the proportion in which the shortlist holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.curation.cover import choose
from ops.curation.shortlist import DOMAINS, before_responses
from ops.curation.signal import RESCUE, Beta, Tallies, group_signals, rescue
from ops.curation.strata import draw

GROUP = 64
"""Rollouts a question in the paper (arXiv:2512.04388, A.1)."""
EMPHASIS = 2
"""The power of the forecast that "signal" weighs problems by: 1 gives more coverage, more than 2 more signal."""
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


def signals(
    problems: Sequence[Problem], tallies: Tallies, group: int, second: Beta | None = RESCUE
) -> dict[str, float]:
    """Problem's key → the forecast that a group of `group` rollouts on it disagrees (`signal.forecast`)."""
    return group_signals(tallies, group, second, problems=[problem.key for problem in problems])


def choose_mix(
    shortlisted: Sequence[Problem], tallies: Tallies, curation: Curation, seed: int, group: int = GROUP
) -> list[Problem]:
    """Exactly `per_domain` problems a domain, in the shortlist's order, domain by domain.

    `group`: rollouts a question, for the forecast. "disagreement" fills the places with problems that some,
    none or unmeasured workers solve, even over families or subjects and levels, and only then with those that
    all solve. Raises `DataError` when a domain has too few.
    """
    weights = signals(shortlisted, tallies, group, rescue(curation.rescued)) if curation.selector == "signal" else {}
    return [
        problem
        for domain in DOMAINS
        for problem in choose_in_domain(
            [p for p in shortlisted if p.domain == domain], tallies, weights, curation, seed, domain
        )
    ]


def choose_in_domain(
    offered: list[Problem], tallies: Tallies, weights: Mapping[str, float], curation: Curation, seed: int, domain: str
) -> list[Problem]:
    """Exactly `per_domain` of one domain's problems; `weights` are those of "signal". Raises `DataError` if too few."""
    places = curation.per_domain
    if len(offered) < places:
        raise DataError(
            "data/shortlist.jsonl",
            f"domain {domain!r}",
            f"holds {len(offered)} problems; the mix needs {places}",
            "Materialize the shortlist again with this recipe",
        )
    if curation.selector == "signal":
        return choose(offered, {name: value**EMPHASIS for name, value in weights.items()}, places, seed)
    if curation.selector != "disagreement":
        return before_responses(offered, places, curation, seed)
    teaching = [problem for problem in offered if agreement(problem, tallies) != "all"]
    easy = [problem for problem in offered if agreement(problem, tallies) == "all"]
    chosen = draw(teaching, places, seed)
    chosen += draw(easy, places - len(chosen), seed)
    names = {problem.key for problem in chosen}
    return [problem for problem in offered if problem.key in names]
