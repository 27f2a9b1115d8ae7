"""The latency of the answer.

In seconds, at least 0, along the critical path and without waits for slots; cached responses count with their original
time. At 20 s per workflow a weight of -0.002 subtracts 0.04 from a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("s")
def latency(trace: WorkflowTrace) -> float:
    """Return the seconds of the critical path."""
    return trace.latency_s
