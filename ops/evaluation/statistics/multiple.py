"""Adjustment of p-values for multiple tests (Holm's method)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the adjusted p-values in the given order; rejecting those below α bounds the family-wise error by α.

    S. Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian Journal of Statistics 6, 1979).
    The bound holds under any dependence between the tests, such as tests on the same questions. Raises `ValueError` if
    a value is outside 0 … 1.
    """
    p = np.asarray(p_values, dtype=float)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("p-values lie in 0 … 1")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
