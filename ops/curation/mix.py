"""The training mix: `per_domain` problems a domain, chosen by what the workers answered.

What belongs here: the choice. What does not: reading responses from disk (`stage`)
and describing the result (`card`).

A GRPO group teaches only when its rollouts' rewards differ. A problem that every
worker solves alone rewards any well-formed workflow alike, so it is the first to be
left out. One that some workers solve teaches which worker to choose. One that no
worker solves alone may still be solved by several in sequence: it is kept beside
those, in the proportion in which the shortlist holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from ops.config import Curation
from ops.curation.shortlist import DOMAINS
from ops.curation.strata import draw
from ops.errors import DataError
from ops.problem import Problem

ProblemKey = tuple[str, str]
"""(benchmark, problem id)."""
PassRates = Mapping[ProblemKey, Mapping[str, float]]
"""Problem → worker's name → share of its samples that were right (0–1). Unmeasured pairs are absent."""
Agreement = Literal["all", "some", "none", "unmeasured"]
"""Which workers solve a problem alone: all of them in every sample, some, none; or nobody was asked."""


def agreement(problem: Problem, rates: PassRates) -> Agreement:
    """How far the measured workers agree on `problem`."""
    measured = rates.get((problem.benchmark, problem.id), {}).values()
    if not measured:
        return "unmeasured"
    if min(measured) >= 1:
        return "all"
    return "some" if max(measured) > 0 else "none"


def agreements(problems: Sequence[Problem], rates: PassRates) -> Counter[Agreement]:
    """How many problems fall in each class."""
    return Counter(agreement(problem, rates) for problem in problems)


def choose_mix(shortlisted: Sequence[Problem], rates: PassRates, curation: Curation, seed: int) -> list[Problem]:
    """Exactly `per_domain` problems a domain, in the shortlist's order, domain by domain.

    "disagreement" fills the places with problems that some, none or unmeasured workers solve, even over
    families or subjects and levels, and only then with those that all solve. "uniform" draws from the
    whole shortlist. Raises `DataError` when a domain has too few.
    """
    return [
        problem
        for domain in DOMAINS
        for problem in _choose([p for p in shortlisted if p.domain == domain], rates, curation, seed, domain)
    ]


def _choose(offered: list[Problem], rates: PassRates, curation: Curation, seed: int, domain: str) -> list[Problem]:
    places = curation.per_domain
    if len(offered) < places:
        raise DataError(
            "data/shortlist.jsonl",
            f"domain {domain!r}",
            f"holds {len(offered)} problems; the mix needs {places}",
            "Materialize the shortlist again with this recipe",
        )
    if curation.selector == "uniform":
        return draw(offered, places, seed)
    teaching = [problem for problem in offered if agreement(problem, rates) != "all"]
    easy = [problem for problem in offered if agreement(problem, rates) == "all"]
    chosen = draw(teaching, places, seed)
    chosen += draw(easy, places - len(chosen), seed)
    names = {(problem.benchmark, problem.id) for problem in chosen}
    return [problem for problem in offered if (problem.benchmark, problem.id) in names]
