"""Prefer coverage only."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.cover import COVERED, choose
from ops.curation.selector import SelectionEvidence, selector


@selector(f"Coverage alone: {COVERED} Difficulty was not considered.")
def diversity(offered: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose by strata and by the content of the questions (`cover`)."""
    return choose(offered, {}, places, evidence.seed)
