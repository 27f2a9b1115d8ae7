"""How many steps a worker answered.

A count, at least 0; steps that were pruned or never asked count nothing. At 3 steps a weight of -0.01 takes 0.03 off
a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("steps")
def steps(trace: WorkflowTrace) -> float:
    """Answered steps."""
    return float(trace.calls)
