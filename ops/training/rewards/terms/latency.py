"""A reward term: the time that passes until the workflow's answer is known.

The value is in seconds and at least 0. It is measured along the critical path, without waits for free slots of a
worker. A cached response counts with the time that it took when it was first given. For a workflow that takes 20 s, a
weight of -0.002 subtracts 0.04 from the reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("s")
def latency(trace: WorkflowTrace) -> float:
    """Return the seconds along a workflow's critical path."""
    return trace.latency_s
