"""The claims that are made of a Conductor, each tested: it is better than this system, on those benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ops.evaluation.statistics import OVERALL, Contrast, contrasts, holm
from ops.reports.evidence import Evidence, QuestionCost, System

ALPHA = 0.05
HOLDS, FAILS = "holds", "does not hold"


class Claim(NamedTuple):
    """The Conductor is more often right than `against` on a group of benchmarks."""

    against: System
    group: str
    contrast: Contrast
    """Its adjusted p-value answers for all claims that are made together."""
    ours: QuestionCost
    theirs: QuestionCost

    @property
    def verdict(self) -> str:
        """Of the adjusted p-value at 5 %: the interval is of this claim alone."""
        if self.contrast.p_adjusted < ALPHA:
            return HOLDS if self.contrast.difference > 0 else FAILS
        smallest = self.contrast.detectable
        shown = (
            "no difference could be" if math.isnan(smallest) else f"minimum detectable difference {100 * smallest:.1f}"
        )
        return f"cannot be told ({shown})"

    @property
    def price(self) -> str:
        """The Conductor's beside theirs."""
        return f"{self.ours.usd / self.theirs.usd:.2f} ×" if self.theirs.usd else "–"


def opponents(evidence: Evidence) -> list[System]:
    """Against whom claims are made: the best worker, the cold start, every baseline; of other workers none is."""
    best = evidence.systems.get(evidence.best_worker)
    return [*([best] if best else []), *evidence.of_kind("cold start", "baseline")]


def claims(evidence: Evidence) -> list[Claim]:
    """Every claim on every group of benchmarks, one family: in-domain first. None without a Conductor."""
    ours = evidence.ours
    if ours is None:
        return []
    made = [
        Claim(evidence.systems[row.system], group, row, ours.price(over), evidence.systems[row.system].price(over))
        for group, over in evidence.groups.items()
        for row in compared(ours, opponents(evidence), over)
        if row.benchmark == OVERALL
    ]
    adjusted: Iterable[float] = holm([claim.contrast.p_value for claim in made]) if made else ()
    return [
        claim._replace(contrast=claim.contrast._replace(p_adjusted=float(p)))
        for claim, p in zip(made, adjusted, strict=True)
    ]


def compared(ours: System, others: Sequence[System], over: Sequence[str]) -> list[Contrast]:
    """`ops.evaluation.statistics.contrasts` of these systems on these benchmarks."""
    parts = {
        system.name: {name: system.accuracies[name] for name in over if name in system.accuracies}
        for system in (ours, *others)
    }
    return contrasts(parts, ours.name)
