"""Format amounts of money."""

from __future__ import annotations

import math


def usd(amount: float) -> str:
    """Return USD with two significant digits and no exponent, so that small costs stay readable; a dash for NaN."""
    if math.isnan(amount):
        return "–"
    if amount == 0:
        return "$0"
    digits = max(2, 1 - math.floor(math.log10(abs(amount))))
    return f"${amount:.{digits}f}"
