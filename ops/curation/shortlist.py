"""The shortlist: clean, diverse candidates, `shortlist_factor` for each place in the mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Domain, Problem
from ops.curation.cover import choose
from ops.curation.decontaminate import decontaminate, report
from ops.curation.proxies import proxy_weights
from ops.curation.strata import draw

DOMAINS: tuple[Domain, ...] = get_args(Domain)


class Shortlist(NamedTuple):
    """The candidates to precache, domain by domain, and the contamination report."""

    problems: list[Problem]
    report: dict[str, Any]


def shortlist(
    candidates: Sequence[Problem], evaluation: Mapping[str, Sequence[Problem]], curation: Curation, seed: int
) -> Shortlist:
    """ceil(`per_domain` × `shortlist_factor`) problems a domain.

    "uniform" draws them without looking; "disagreement" evenly over families or subjects and levels; the other
    selectors so too, and by what the questions cover (`cover`), "proxy" with the proxies for weights.
    A domain with fewer candidates gives all it has. Raises `DataError` when it has fewer than `per_domain`.
    """
    held_out = [problem for problems in evaluation.values() for problem in problems]
    threshold = curation.near_duplicate_jaccard
    clean = decontaminate(candidates, held_out, threshold)
    places = math.ceil(round(curation.per_domain * curation.shortlist_factor, 6))
    chosen: list[Problem] = []
    for domain in DOMAINS:
        offered = [problem for problem in clean.kept if problem.domain == domain]
        before = sum(problem.domain == domain for problem in candidates)
        _enough(domain, len(offered), before, curation.per_domain)
        chosen += before_responses(offered, places, curation, seed)
    return Shortlist(chosen, report(clean, len(candidates), len(held_out), threshold))


def before_responses(offered: list[Problem], places: int, curation: Curation, seed: int) -> list[Problem]:
    """At most `places` of one domain's problems, in the order given, by what is known without asking a worker."""
    if curation.selector == "uniform":
        return draw(offered, places, seed, key=lambda problem: None)
    if curation.selector == "disagreement":
        return draw(offered, places, seed)
    return choose(offered, proxy_weights(offered) if curation.selector == "proxy" else {}, places, seed)


def _enough(domain: Domain, kept: int, before: int, needed: int) -> None:
    if kept < needed:
        raise DataError(
            "shortlist",
            f"domain {domain!r}",
            f"has {kept} candidates, of {before}, that repeat nothing; the mix needs {needed}",
            "Give its benchmark more candidates (`train` in the recipe) or lower curation.per_domain",
        )
