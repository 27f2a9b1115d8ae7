"""What was changed, and what came of it."""

from __future__ import annotations

from ops.reports import paper
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Shown, Table, exhibit


@exhibit(
    "Experiments and ablations",
    130,
    shows="One thing changed at a time; the paper's own ablations stand last, for their direction.",
    paper=f"its ablations (workers, subtasks, few-shots, access); {paper.ONE_WORKER}",
    needs=("experiments",),
)
def experiments(evidence: Evidence) -> Shown:
    """A table of each that was run on this policy."""
    tables = [
        Table(made.title, made.table.head, made.table.rows, note=" ".join(part for part in (made.changes, made.said) if part))
        for made in evidence.experiments.values()
    ]
    head = ["change", *(f"{name}, %" for name in ("math500", "mmlu", "rlpr", "livecodebench"))]
    theirs = [[name, *(f"{value:.2f}" for value in values)] for name, values in paper.ABLATIONS.items()]
    reference = Table(f"Ablations: {paper.head(evidence.about.as_paper)}", head, theirs)
    return Shown([*tables, reference], f"{len(tables)} experiments")
