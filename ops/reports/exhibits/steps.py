"""The number of steps of workflows."""

from __future__ import annotations

from ops.core.charts import StackedBars, compute_shares
from ops.reports import paper
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit
from ops.results.statistics import estimate_mean
from ops.results.summary import count_values_by_benchmark


@exhibit(
    "Steps by benchmark",
    80,
    shows="How many steps the Conductor's valid workflows have.",
    paper=f"its account of workflow lengths: {paper.REPORTED_STEPS}",
    needs=("conductor",),
)
def steps(evidence: Evidence) -> ExhibitContent:
    """Shares of workflow lengths in %, and mean lengths ± standard error."""
    found = count_values_by_benchmark(evidence.conductor_rows, "steps")
    counts = {name: found[name] for name in evidence.benchmarks}
    lengths = sorted({length for own in counts.values() for length in own})
    layers = compute_shares(counts, {length: f"{length} step{'s' * (length != 1)}" for length in lengths})
    rows: list[list[Cell]] = []
    for place, (name, own) in enumerate(counts.items()):
        mean = estimate_mean(list(own.elements()))
        shown = f"{mean.mean:.2f} ± {mean.standard_error:.2f}" if mean.n > 1 else "–"
        rows.append([name, own.total(), shown, *(f"{layer[place]:.0f}" for layer in layers.values())])
    head = ["benchmark", "valid workflows", "mean steps", *(f"{name}, %" for name in layers)]
    total, answers = (
        sum(own.total() for own in counts.values()),
        sum(each.rows for each in evidence.workflow_summaries.values()),
    )
    chart = StackedBars("", "share of valid workflows in %", "benchmark", list(counts), layers)
    return ExhibitContent(
        [chart, Table("Shares of the workflows by steps", head, rows, is_folded=True)],
        f"{total:,} valid workflows of {answers:,} written",
    )
