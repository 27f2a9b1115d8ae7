"""The training mix: `per_domain` problems a domain, chosen as the recipe's selector says."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.errors import DataError
from ops.core.problem import Domain, Problem
from ops.curation.selector import SELECTORS, Evidence


def choose_mix(
    shortlisted: Sequence[Problem], evidence: Evidence, domains: Sequence[Domain] | None = None
) -> list[Problem]:
    """Exactly `per_domain` problems a domain, in the shortlist's order, domain by domain.

    `domains` None: those of the problems. Raises `DataError` when a domain has too few.
    """
    wanted = dict.fromkeys(problem.domain for problem in shortlisted) if domains is None else domains
    return [
        problem
        for domain in wanted
        for problem in choose_in_domain([p for p in shortlisted if p.domain == domain], evidence, domain)
    ]


def choose_in_domain(offered: Sequence[Problem], evidence: Evidence, domain: Domain) -> list[Problem]:
    """Exactly `per_domain` of one domain's problems. Raises `DataError` if there are too few."""
    curation = evidence.curation
    if len(offered) < curation.per_domain:
        raise DataError(
            "data/shortlist.jsonl",
            f"domain {domain!r}",
            f"holds {len(offered)} problems; the mix needs {curation.per_domain}",
            "Materialize the shortlist again with this recipe",
        )
    return SELECTORS[curation.selector].choose(offered, curation.per_domain, evidence)
