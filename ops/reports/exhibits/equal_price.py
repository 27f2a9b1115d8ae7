"""Compare the Conductor with opponents at an equal price."""

from __future__ import annotations

from ops.reports.evidence import Evidence
from ops.reports.exhibit import ExhibitContent, exhibit
from ops.reports.exhibits._equal import compare_with_best
from ops.spending.bookings import format_usd


@exhibit(
    "At equal price",
    40,
    shows="The best other system that costs no more for a question than the Conductor, and the best at any price.",
    needs=("conductor", "opponents"),
)
def equal_price(evidence: Evidence) -> ExhibitContent:
    """Compare with the best worker or baseline within the Conductor's price, chosen on the compared questions."""
    return compare_with_best(evidence, lambda spent: spent.usd, "USD", "price", format_usd)
