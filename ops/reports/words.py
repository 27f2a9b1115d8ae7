"""Format numbers for a report."""

from __future__ import annotations

import math

from ops.evaluation.report import percent
from ops.evaluation.statistics import MeanEstimate
from ops.spending.books import usd

NO_BREAK = "\N{NO-BREAK SPACE}"
__all__ = ["accuracy", "number", "points", "probability", "usd"]


def accuracy(estimate: MeanEstimate) -> str:
    """Format an accuracy in % as `71.0 ± 4.5`, without line breaks."""
    return percent(estimate).replace(" ", NO_BREAK)


def number(value: float, digits: int = 0) -> str:
    """Format a number with `digits` decimals; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def points(share: float) -> str:
    """Format a difference of shares in percentage points with its sign; a dash for NaN."""
    return "–" if math.isnan(share) else f"{100 * share:+.1f}".replace("-", "−")


def probability(p: float) -> str:
    """Format a p-value with three digits, the resolution of the underlying draws."""
    return "<" + NO_BREAK + "0.001" if p < 0.001 else f"{p:.3f}"
