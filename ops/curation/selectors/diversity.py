"""Prefer coverage of strata and of words; difficulty does not matter."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.diverse_choice import COVERAGE_DESCRIPTION, choose_diverse
from ops.curation.selector import SelectionEvidence, selector


@selector(f"Coverage alone: {COVERAGE_DESCRIPTION} Difficulty was not considered.")
def diversity(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose by strata and by the words of the questions (`ops.curation.diverse_choice`)."""
    return choose_diverse(candidates, {}, places, evidence.seed)
