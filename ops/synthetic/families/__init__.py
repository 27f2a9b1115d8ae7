"""Seeded problem families of the synthetic environment.

What belongs here: generators of questions whose answer is known by construction and confirmed by a second derivation.
One module per training domain, one for the unseen benchmarks.
"""

from __future__ import annotations

from ops.synthetic.families import code, math, mmlu, rlpr, unseen
from ops.synthetic.families.base import Family, ProblemDraft

FAMILIES: tuple[Family, ...] = (
    *math.FAMILIES,
    *mmlu.FAMILIES,
    *rlpr.FAMILIES,
    *code.FAMILIES,
    *unseen.FAMILIES,
)

__all__ = ["FAMILIES", "Family", "ProblemDraft"]
