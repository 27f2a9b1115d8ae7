"""The confidence of each interim analysis, when many challengers are compared with one champion.

A challenger every night is a test every night, and a gate that passes a worse one in one of forty looks has more
likely than not passed one after a month. So the looks at one champion share one chance of error: look k gets a
part of it, and the parts add up to no more than the whole, however many looks there are and whatever they have in
common (Bonferroni's inequality). That is all that is assumed: not that challengers are independent, nor
that the questions stay the same.
"""

from __future__ import annotations

from ops.config import PromotionGate


def confidence_at(gate: PromotionGate, look: int) -> float:
    """The two-sided confidence of the interval at this look at a champion, 1 for the first.

    Without `planned_looks` the parts are 1/2, 1/6, 1/12 … 1/(k·(k+1)), which add up to 1: the first challengers, of
    which most champions see few, have most of it, and there is no last one. With them, every look has the same part
    and `decide` refuses what comes after. Raises `ValueError` on a look before the first.
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1, got {look}")
    part = 1 / (look * (look + 1)) if gate.planned_looks is None else 1 / gate.planned_looks
    return 1 - (1 - gate.confidence) * part
