"""Choose the shortlist of clean and diverse candidates, and the training mix from the shortlist.

The shortlist has `shortlist_factor` candidates for each place of the mix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Domain, Problem
from ops.curation.decontaminate import build_contamination_report, decontaminate
from ops.curation.selector import SELECTORS, SelectionEvidence


class Shortlist(NamedTuple):
    """The problems to precache, grouped by domain, and the contamination report."""

    problems: list[Problem]
    report: dict[str, Any]


def choose_shortlist(
    candidates: Sequence[Problem],
    evaluation: Mapping[str, Sequence[Problem]],
    curation: Curation,
    seed: int,
    domains: Sequence[Domain] | None = None,
) -> Shortlist:
    """Choose ceil(`per_domain` × `shortlist_factor`) problems per domain with the selector, without responses.

    `domains` None stands for those of the candidates. A domain with fewer candidates contributes all of them. Raises
    `DataError` if it has fewer than `per_domain`.
    """
    wanted = dict.fromkeys(problem.domain for problem in candidates) if domains is None else domains
    held_out = [problem for problems in evaluation.values() for problem in problems]
    threshold = curation.near_duplicate_jaccard
    clean = decontaminate(candidates, held_out, threshold)
    places = math.ceil(round(curation.per_domain * curation.shortlist_factor, 6))
    chosen: list[Problem] = []
    for domain in wanted:
        offered = [problem for problem in clean.kept if problem.domain == domain]
        before = sum(problem.domain == domain for problem in candidates)
        _check_enough(domain, len(offered), before, curation.per_domain)
        chosen += SELECTORS[curation.selector].choose(offered, places, SelectionEvidence(curation, seed))
    return Shortlist(chosen, build_contamination_report(clean, len(candidates), len(held_out), threshold))


def _check_enough(domain: Domain, kept: int, before: int, needed: int) -> None:
    if kept < needed:
        raise DataError(
            "shortlist",
            f"domain {domain!r}",
            f"has {kept} candidates, of {before}, without duplicates; the mix needs {needed}",
            "Give its benchmark more candidates (`train` in the recipe) or lower curation.per_domain",
        )


def choose_mix(
    shortlisted: Sequence[Problem], evidence: SelectionEvidence, domains: Sequence[Domain] | None = None
) -> list[Problem]:
    """Choose exactly `per_domain` problems per domain, grouped by domain and in the shortlist's order.

    `domains` None stands for those of the problems. Raises `DataError` if a domain has too few.
    """
    wanted = dict.fromkeys(problem.domain for problem in shortlisted) if domains is None else domains
    return [
        problem
        for domain in wanted
        for problem in choose_in_domain([p for p in shortlisted if p.domain == domain], evidence, domain)
    ]


def choose_in_domain(candidates: Sequence[Problem], evidence: SelectionEvidence, domain: Domain) -> list[Problem]:
    """Choose exactly `per_domain` of one domain's problems. Raises `DataError` if there are too few."""
    curation = evidence.curation
    if len(candidates) < curation.per_domain:
        raise DataError(
            "data/shortlist.jsonl",
            f"domain {domain!r}",
            f"holds {len(candidates)} problems; the mix needs {curation.per_domain}",
            "Materialize the shortlist again with this recipe",
        )
    return SELECTORS[curation.selector].choose(candidates, curation.per_domain, evidence)
