"""What the workers' responses cost.

In USD, at least 0; cached responses count at what they cost when they were paid for. At 0.002 USD a workflow a weight
of -20 takes 0.04 off a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("USD")
def cost(trace: WorkflowTrace) -> float:
    """USD of all steps."""
    return trace.cost_usd
