"""The confidence of each interim analysis, when many challengers are compared with one champion.

With a challenger every night, a gate that passes a worse one with a chance of 1 in 40 has more likely than not passed
one after a month. Therefore all analyses against one champion share one error probability: analysis k gets a part of
it, and the parts add up to at most the whole for any number of analyses and any dependence between them (Bonferroni's
inequality). Neither independent challengers nor unchanged questions are assumed.
"""

from __future__ import annotations

from ops.config import PromotionGate


def confidence_at(gate: PromotionGate, analysis: int) -> float:
    """Return the two-sided confidence of the interval of analysis number `analysis` (from 1) against one champion.

    Without `planned_analyses` the parts are 1/2, 1/6, 1/12 … 1/(k·(k+1)), which add up to 1: most of the error
    probability goes to the first challengers, and the number of analyses is unlimited. With `planned_analyses` each
    analysis has the same part, and `decide` refuses later ones. Raises `ValueError` if `analysis` is less than 1.
    """
    if analysis < 1:
        raise ValueError(f"analyses are counted from 1, got {analysis}")
    part = 1 / (analysis * (analysis + 1)) if gate.planned_analyses is None else 1 / gate.planned_analyses
    return 1 - (1 - gate.confidence) * part
