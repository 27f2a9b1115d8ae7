"""All but what every worker solves alone.

The plain form of "signal", for a pool whose workers are right or wrong for good: a problem that every worker solves
alone rewards any well-formed workflow alike and is the first to be left out; what some workers solve, and what none
solves alone, is kept in the proportion in which the shortlist holds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.cover import draw
from ops.curation.selector import FORECAST, SelectionEvidence, selector
from ops.curation.signal import agreement


@selector(
    "What every worker solves alone in every sample is left out first; the places are shared evenly "
    "over families or subjects and levels.",
    reads_responses=True,
    weighing=FORECAST,
)
def disagreement(offered: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Problems that some, none or unmeasured workers solve, even over strata; only then those that all solve."""
    tallies = evidence.tallies or {}
    teaching = [problem for problem in offered if agreement(problem, tallies) != "all"]
    easy = [problem for problem in offered if agreement(problem, tallies) == "all"]
    chosen = draw(teaching, places, evidence.seed)
    chosen += draw(easy, places - len(chosen), evidence.seed)
    keys = {problem.key for problem in chosen}
    return [problem for problem in offered if problem.key in keys]
