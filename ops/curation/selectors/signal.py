"""Groups of rollouts likely to disagree, forecast from precached responses.

A GRPO group teaches only when its rollouts' rewards differ. The shortlist, which is made before workers are asked,
goes by coverage alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.cover import COVERED, choose
from ops.curation.selector import FORECAST, SelectionEvidence, selector, signals

EMPHASIS = 2
"""The power of the forecast that problems are weighed by: 1 gives more coverage, more than 2 more signal."""


@selector(
    "Problems on which a GRPO group is likely to disagree are preferred, for a group whose rollouts are all "
    f"right or all wrong teaches nothing. The forecast comes from precached responses. Beside it, {COVERED}",
    reads_responses=True,
    weighing=FORECAST,
)
def signal(offered: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """The forecast, and what the questions cover (`cover`)."""
    forecasts = {} if evidence.tallies is None else signals(offered, evidence)
    return choose(offered, {key: value**EMPHASIS for key, value in forecasts.items()}, places, evidence.seed)
