"""Prefer problems that not every worker solves alone.

This is a simple form of "signal", for a pool whose workers are consistently right or wrong. On a problem that every
worker solves alone, every well-formed workflow gets the same reward, so such problems are left out first. Problems that
some workers solve, and those that no worker solves alone, keep their proportion in the shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.diverse_choice import draw_evenly
from ops.curation.selector import SIGNAL_FORECAST, SelectionEvidence, selector
from ops.curation.training_signal import classify_agreement


@selector(
    "What every worker solves alone in every sample is left out first; the places are shared evenly "
    "over families or subjects and levels.",
    reads_responses=True,
    weighting=SIGNAL_FORECAST,
)
def disagreement(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose evenly over strata among the problems that not all workers solve, then among those that all workers solve.

    Problems that no worker has answered belong to the first.
    """
    tallies = evidence.tallies or {}
    teaching = [problem for problem in candidates if classify_agreement(problem, tallies) != "all"]
    easy = [problem for problem in candidates if classify_agreement(problem, tallies) == "all"]
    chosen = draw_evenly(teaching, places, evidence.seed)
    chosen += draw_evenly(easy, places - len(chosen), evidence.seed)
    keys = {problem.key for problem in chosen}
    return [problem for problem in candidates if problem.key in keys]
