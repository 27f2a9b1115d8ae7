"""The use of workers by domain."""

from __future__ import annotations

from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit
from ops.results.leaderboard import chart_worker_use as charted
from ops.results.summary import count_worker_steps


@exhibit(
    "Worker use by domain",
    70,
    shows="Which share of the Conductor's steps goes to each worker, in each domain of the evaluation.",
    paper="its picture of how often each worker is chosen for each task",
    needs=("conductor",),
)
def worker_use(evidence: Evidence) -> ExhibitContent:
    """Each worker's share of executed steps per domain, in %."""
    chart = charted(evidence.conductor_rows)
    totals = {domain: used.total() for domain, used in count_worker_steps(evidence.conductor_rows).items()}
    answers = sum(each.rows for each in evidence.workflow_summaries.values())
    rows: list[list[Cell]] = [
        [domain, totals[domain], *(f"{shares[place]:.0f}" for shares in chart.layers.values())]
        for place, domain in enumerate(chart.categories)
    ]
    head = ["domain", "steps", *(f"{name}, %" for name in chart.layers)]
    table = Table("Shares of the steps", head, rows, is_folded=True)
    return ExhibitContent([chart, table], f"{sum(totals.values()):,} steps of {answers:,} workflows")
