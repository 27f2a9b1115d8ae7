"""How an amount of money is written."""

from __future__ import annotations

import math


def usd(amount: float) -> str:
    """USD with two significant digits and no exponent: small costs stay readable; a dash for an unknown (NaN)."""
    if math.isnan(amount):
        return "–"
    if amount == 0:
        return "$0"
    digits = max(2, 1 - math.floor(math.log10(abs(amount))))
    return f"${amount:.{digits}f}"
