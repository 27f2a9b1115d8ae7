"""The shapes of the workflows."""

from __future__ import annotations

from collections import Counter

from ops.core.charts import StackedBars, compute_shares
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit
from ops.workflow.strategy import SHAPES, measure_diversity


@exhibit(
    "Shapes by benchmark",
    90,
    shows="The shapes of the Conductor's valid workflows, and how varied they are.",
    paper="its examples of strategies that emerge: planning, verification, aggregation, debate",
    needs=("conductor",),
)
def shapes(evidence: Evidence) -> ExhibitContent:
    """Shares of shapes in %; number of distinct patterns (workers and access lists) and their entropy in bits."""
    written = evidence.workflow_summaries
    counts = {name: Counter(written[name].shapes if name in written else ()) for name in evidence.benchmarks}
    found = [shape for shape in SHAPES if any(own[shape] for own in counts.values())]
    layers = compute_shares(counts, {str(shape): shape.replace("_", " ") for shape in found})
    rows: list[list[Cell]] = []
    for place, name in enumerate(counts):
        varied = measure_diversity(Counter(written[name].patterns if name in written else ()).elements())
        both = f"{100 * written[name].multi_worker_share:.0f}" if counts[name] else "–"
        rows.append([name, counts[name].total(), *(f"{layer[place]:.0f}" for layer in layers.values()), both,
                     varied.distinct, f"{varied.entropy:.2f}"])  # fmt: skip
    head = ["benchmark", "valid workflows", *(f"{name}, %" for name in layers), "more than one worker, %", "patterns",
            "entropy, bits"]  # fmt: skip
    chart = StackedBars("", "share of valid workflows in %", "benchmark", list(counts), layers)
    return ExhibitContent(
        [chart, Table("Shares of the workflows by shape", head, rows, is_folded=True)],
        f"{sum(each.written for each in written.values()):,} valid workflows",
    )
