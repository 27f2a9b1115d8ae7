"""Test the claims that a Conductor is more accurate than another system on a group of benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ops.reports.evidence import Evidence, System
from ops.results.statistics import OVERALL, Contrast, adjust_holm, compute_contrasts

ALPHA = 0.05
HOLDS, FAILS = "holds", "does not hold"


class Claim(NamedTuple):
    """The claim that the Conductor is more accurate than `against` on a group of benchmarks."""

    against: System
    group: str
    contrast: Contrast
    """The tested difference in accuracy. Its p-value is adjusted for all claims of the report."""
    our_usd: float
    """The mean cost of a question in USD."""
    their_usd: float

    @property
    def verdict(self) -> str:
        """Return whether the claim holds, by the adjusted p-value at 5 %. The interval of the contrast is not adjusted
        for the other claims."""
        if self.contrast.p_adjusted < ALPHA:
            return HOLDS if self.contrast.difference > 0 else FAILS
        smallest = self.contrast.detectable
        shown = (
            "no difference could be" if math.isnan(smallest) else f"minimum detectable difference {100 * smallest:.1f}"
        )
        return f"undecided ({shown})"

    @property
    def price(self) -> str:
        """Return the Conductor's price as a multiple of the other system's price."""
        return f"{self.our_usd / self.their_usd:.2f} ×" if self.their_usd else "–"


def list_opponents(evidence: Evidence) -> list[System]:
    """Return the systems against which claims are made: the best worker, the cold start and every baseline."""
    best = evidence.systems.get(evidence.best_worker)
    return [*([best] if best else []), *evidence.list_systems("cold start", "baseline")]


def test_claims(evidence: Evidence) -> list[Claim]:
    """Test all claims on all groups of benchmarks, in-domain first, as one family; empty without a Conductor."""
    ours = evidence.conductor
    if ours is None:
        return []
    made = [
        Claim(
            evidence.systems[row.system],
            group,
            row,
            ours.mean_values(over)["cost_usd"],
            evidence.systems[row.system].mean_values(over)["cost_usd"],
        )
        for group, over in evidence.groups.items()
        for row in contrast_systems(ours, list_opponents(evidence), over)
        if row.benchmark == OVERALL
    ]
    adjusted: Iterable[float] = adjust_holm([claim.contrast.p_value for claim in made]) if made else ()
    return [
        claim._replace(contrast=claim.contrast._replace(p_adjusted=float(p)))
        for claim, p in zip(made, adjusted, strict=True)
    ]


def contrast_systems(ours: System, others: Sequence[System], over: Sequence[str]) -> list[Contrast]:
    """Return the contrasts (`ops.results.statistics.contrasts`) of `ours` with each of `others` on the benchmarks
    `over`."""
    parts = {
        system.name: {name: system.accuracies[name] for name in over if name in system.accuracies}
        for system in (ours, *others)
    }
    return compute_contrasts(parts, ours.name)
