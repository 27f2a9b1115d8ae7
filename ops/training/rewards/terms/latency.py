"""How long the answer takes.

In seconds, at least 0, along the critical path and without waits for slots; cached responses count at the time that
they took when they were paid for. At 20 s a workflow a weight of -0.002 takes 0.04 off a reward.
"""

from __future__ import annotations

from ops.training.rewards.reward_term import reward_term
from ops.workflow.trace import WorkflowTrace


@reward_term("s")
def latency(trace: WorkflowTrace) -> float:
    """Seconds of the critical path."""
    return trace.latency_s
