"""A seeded order that is the same on every machine and Python: what samples and cuts are made of."""

from __future__ import annotations

import hashlib
from typing import TypeVar

Item = TypeVar("Item")


def shuffled(items: list[Item], names: list[str], seed: int) -> list[Item]:
    """`items` in the order of the SHA-256 of the seed and their names."""
    keys = {name: hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names}
    return [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: keys[pair[0]])]
