"""A reward term: the cost of the workers' responses.

The value is in USD and at least 0. A cached response counts at what it cost when it was first given. For a workflow
that costs 0.002 USD, a weight of -20 subtracts 0.04 from the reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("USD")
def cost(trace: WorkflowTrace) -> float:
    """Return the USD of all steps of a workflow."""
    return trace.cost_usd
