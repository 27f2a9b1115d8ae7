"""Problems weighed by the forecast that a group of rollouts on them disagrees."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.selector import Evidence, Weighing
from ops.curation.signal import group_signals, rescue


def signals(problems: Sequence[Problem], evidence: Evidence) -> dict[str, float]:
    """Problem's key → the forecast that a group on it disagrees (`signal.group_signals`)."""
    second = rescue(evidence.curation.rescued)
    keys = [problem.key for problem in problems]
    return group_signals(evidence.tallies or {}, evidence.group, second, problems=keys)


def _explained(evidence: Evidence) -> str:
    return (
        f"The probability that of {evidence.group} rollouts on a problem not all are right and not "
        "all wrong, from the workers' pooled pass rates under a prior fitted to each benchmark. Chains of workers are "
        f"assumed to rescue {evidence.curation.rescued:.0%} of failing rollouts on average; that is not measured."
    )


FORECAST = Weighing("Forecast signal", _explained, signals)
