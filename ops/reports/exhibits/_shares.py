"""Shares by category, as the input of stacked bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def shares(counts: Mapping[str, Counter[K]], names: Mapping[K, str]) -> dict[str, list[float]]:
    """Name of a key → its share in each category, in %; zero if a category is empty."""
    return {
        name: [100 * own[key] / own.total() if own.total() else 0.0 for own in counts.values()]
        for key, name in names.items()
    }
