"""Prefer problems that not every worker solves alone.

This is the simple form of "signal", for a pool whose workers are consistently right or wrong. A problem that every
worker solves alone rewards every well-formed workflow equally and is dropped first. Problems that some workers solve,
and those that no worker solves alone, keep their proportion in the shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.cover import draw_evenly
from ops.curation.selector import SIGNAL_FORECAST, SelectionEvidence, selector
from ops.curation.signal import classify_agreement


@selector(
    "What every worker solves alone in every sample is left out first; the places are shared evenly "
    "over families or subjects and levels.",
    reads_responses=True,
    weighting=SIGNAL_FORECAST,
)
def disagreement(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose problems that some, none or unmeasured workers solve,
    evenly over strata; then those that all workers solve.
    """
    tallies = evidence.tallies or {}
    teaching = [problem for problem in candidates if classify_agreement(problem, tallies) != "all"]
    easy = [problem for problem in candidates if classify_agreement(problem, tallies) == "all"]
    chosen = draw_evenly(teaching, places, evidence.seed)
    chosen += draw_evenly(easy, places - len(chosen), evidence.seed)
    keys = {problem.key for problem in chosen}
    return [problem for problem in candidates if problem.key in keys]
