"""Compare the Conductor with opponents at an equal number of calls."""

from __future__ import annotations

from ops.reports.evidence import Evidence
from ops.reports.exhibit import ExhibitContent, exhibit, format_number
from ops.reports.exhibits._equal import compare_with_best


@exhibit(
    "At equal calls",
    50,
    shows="The best other system that makes no more calls for a question than the Conductor, and the best with any "
    "number.",
    paper="its baselines, each held to five calls (Mixture-of-Agents to eight)",
    needs=("conductor", "opponents"),
)
def equal_calls(evidence: Evidence) -> ExhibitContent:
    """Compare with the best opponent within the Conductor's calls per question; opponents as at equal price."""
    return compare_with_best(
        evidence, lambda spent: spent.calls, "calls", "number of calls", lambda calls: format_number(calls, 2)
    )
