"""Prefer problems on which the rollouts of a group are likely to differ, by a forecast from precached responses.

A GRPO group has a gradient only if the rewards of its rollouts differ. The shortlist, which is chosen before workers
are called, uses coverage alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.diverse_choice import COVERAGE_DESCRIPTION, choose_diverse
from ops.curation.selector import SIGNAL_FORECAST, SelectionEvidence, forecast_signals, selector

FORECAST_EXPONENT = 2
"""The exponent of the forecast in a problem's weight: 1 gives more coverage, more than 2 gives more signal."""


@selector(
    "Problems on which a GRPO group is likely to disagree are preferred, for a group whose rollouts are all "
    f"right or all wrong teaches nothing. The forecast comes from precached responses. Beside it, "
    f"{COVERAGE_DESCRIPTION}",
    reads_responses=True,
    weighting=SIGNAL_FORECAST,
)
def signal(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose by the forecast and by the words of the questions (`ops.curation.diverse_choice`)."""
    forecasts = {} if evidence.tallies is None else forecast_signals(candidates, evidence)
    return choose_diverse(
        candidates, {key: value**FORECAST_EXPONENT for key, value in forecasts.items()}, places, evidence.seed
    )
