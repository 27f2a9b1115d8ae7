"""How numbers are written in a report."""

from __future__ import annotations

import math

from ops.evaluation.report import percent
from ops.evaluation.statistics import MeanEstimate
from ops.spending.money import usd

NO_BREAK = "\N{NO-BREAK SPACE}"
__all__ = ["accuracy", "number", "points", "probability", "usd"]


def accuracy(estimate: MeanEstimate) -> str:
    """`71.0 ± 4.5`, in %, on one line."""
    return percent(estimate).replace(" ", NO_BREAK)


def number(value: float, digits: int = 0) -> str:
    """A dash where there is none."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def points(share: float) -> str:
    """A difference of shares, in points, with its sign."""
    return "–" if math.isnan(share) else f"{100 * share:+.1f}".replace("-", "−")


def probability(p: float) -> str:
    """Three digits, which is what the draws behind it give."""
    return "<" + NO_BREAK + "0.001" if p < 0.001 else f"{p:.3f}"
