"""The experiments and their results."""

from __future__ import annotations

from ops.evaluation.study import STUDIES
from ops.reports import paper
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Shown, Table, exhibit


@exhibit(
    "Experiments and ablations",
    130,
    shows="Studies of this policy, each about one change or observation. The paper's own ablations follow, so that "
    "you can compare the direction of the effects.",
    paper=f"its ablations (workers, subtasks, few-shots, access); {paper.ONE_WORKER}",
)
def experiments(evidence: Evidence) -> Shown:
    """A table per finished experiment, and a table of the other experiments with the commands that run them."""
    run = [
        Table(
            made.title,
            made.table.head,
            made.table.rows,
            note=f"{made.changes[:1].upper()}{made.changes[1:]}. {made.said}",
        )
        for made in evidence.experiments.values()
    ]
    absent = _absent(evidence)
    head = ["change", *(f"{name}, %" for name in ("math500", "mmlu", "rlpr", "livecodebench"))]
    theirs = [[name, *(f"{value:.2f}" for value in values)] for name, values in paper.ABLATIONS.items()]
    reference = Table(f"Ablations: {paper.head(evidence.about.as_paper)}", head, theirs)
    parts = [*run, *([Table("Not in this report", ["study", "command"], absent)] if absent else []), reference]
    return Shown(parts, f"{len(run)} of {len(STUDIES)} studies on this policy")


def _absent(evidence: Evidence) -> list[list[str]]:
    here = [
        [entry.title, f"not run: podium study {name} --recipe {evidence.about.argument}"]
        for name, entry in STUDIES.items()
        if name not in evidence.experiments
    ]
    return here + [
        [f"{name.replace('_', ' ')} (trains another policy)", f"podium study {name}"] for name in evidence.retrained
    ]
