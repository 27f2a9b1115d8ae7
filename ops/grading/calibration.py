"""The speed of this machine, so that a limit of CPU seconds allows the same work as on the reference machine."""

from __future__ import annotations

import time
from functools import lru_cache

REFERENCE_S = 0.0070
"""CPU seconds of `_reference_loop` in CPython 3.11 on a core of a 2.1 GHz Xeon (Sapphire Rapids), by itself."""
LARGEST = 10.0
_ROUNDS = 5


@lru_cache(maxsize=1)
def slowness() -> float:
    """This machine's CPU time for the reference loop over the reference's, from 1 to `LARGEST`.

    Measured once a process, in 40 ms; the least of some rounds, since what disturbs only adds.
    """
    return min(max(min(_measured() for _ in range(_ROUNDS)) / REFERENCE_S, 1.0), LARGEST)


def _measured() -> float:
    began = time.thread_time()
    _reference_loop()
    return time.thread_time() - began


def _reference_loop() -> int:
    """What programs of contests do: arithmetic, a table, a loop."""
    total, table = 0, {}
    for i in range(100_000):
        total = (total * 31 + i) % 65_521
        table[total & 255] = i
    return total + len(table)
