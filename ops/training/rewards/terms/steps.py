"""The number of steps that a worker answered.

A count, at least 0; pruned steps and steps that were not run do not count. At 3 steps a weight of -0.01 subtracts 0.03
from a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("steps")
def steps(trace: WorkflowTrace) -> float:
    """Return the number of answered steps."""
    return float(trace.calls)
