"""Seeded problem families of the synthetic environment.

A family generates questions whose answer is known by construction and confirmed by a second derivation. There is a
module for each training domain and one for the unseen benchmarks.
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
"""All families."""

__all__ = ["FAMILIES", "Family", "ProblemDraft"]
