"""The cost of the workers' responses.

In USD, at least 0; cached responses count at their original cost. At 0.002 USD per workflow a weight of -20 subtracts
0.04 from a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("USD")
def cost(trace: WorkflowTrace) -> float:
    """Return the USD of all steps."""
    return trace.cost_usd
