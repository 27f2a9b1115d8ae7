"""The use of workers by domain."""

from __future__ import annotations

from ops.evaluation.report import worker_counts
from ops.reports.charts import Stacked
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, Shown, Table, exhibit


@exhibit(
    "Worker use by domain",
    70,
    shows="Which share of the Conductor's steps goes to each worker, in each domain of the evaluation.",
    paper="its picture of how often each worker is chosen for each task",
    needs=("conductor",),
)
def worker_use(evidence: Evidence) -> Shown:
    """Each worker's share of executed steps per domain, in %."""
    counts = worker_counts(evidence.conductor)
    domains = sorted(counts)
    totals = {domain: counts[domain].total() for domain in domains}
    workers = sorted({name for used in counts.values() for name in used})
    layers = {name: [100 * counts[domain][name] / totals[domain] for domain in domains] for name in workers}
    rows: list[list[Cell]] = [
        [domain, totals[domain], *(f"{layers[name][place]:.0f}" for name in workers)]
        for place, domain in enumerate(domains)
    ]
    table = Table("", ["domain", "steps", *(f"{name}, %" for name in workers)], rows)
    chart = Stacked("", "share of the steps in %", "domain", domains, layers)
    return Shown([chart, table], f"{sum(totals.values()):,} steps of {len(evidence.conductor):,} workflows")
