"""Prefer no problem; this is the baseline for the other selectors."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.diverse_choice import draw_evenly
from ops.curation.selector import SelectionEvidence, selector


@selector("A plain random draw, to compare the other selectors with.")
def uniform(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Draw problems uniformly by the seed."""
    return draw_evenly(candidates, places, evidence.seed, stratum_of=lambda problem: None)
