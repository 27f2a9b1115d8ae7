"""A reward term: the number of a workflow's steps that a worker answered.

The value is a count and at least 0. Steps that were pruned or not run do not count. For a workflow of 3 steps, a weight
of -0.01 subtracts 0.03 from the reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("steps")
def steps(trace: WorkflowTrace) -> float:
    """Return the number of steps that a worker answered."""
    return float(trace.calls)
