"""The experiments and their results."""

from __future__ import annotations

from ops.evaluation.study import STUDIES
from ops.reports import paper
from ops.reports.evidence import Evidence
from ops.reports.exhibit import ExhibitContent, Table, exhibit


@exhibit(
    "Experiments and ablations",
    130,
    shows="Studies of this policy, each about one change or observation. The paper's own ablations follow, so that "
    "you can compare the direction of the effects.",
    paper=f"its ablations (workers, subtasks, few-shots, access); {paper.REPORTED_ONE_WORKER}",
)
def experiments(evidence: Evidence) -> ExhibitContent:
    """A table per finished experiment, and a table of the other experiments with the commands that run them."""
    run = [
        Table(
            made.title,
            made.table.head,
            made.table.rows,
            note=f"{made.changes[:1].upper()}{made.changes[1:]}. {made.summary}",
        )
        for made in evidence.experiments.values()
    ]
    absent = _missing_rows(evidence)
    head = ["change", *(f"{name}, %" for name in ("math500", "mmlu", "rlpr", "livecodebench"))]
    theirs = [[name, *(f"{value:.2f}" for value in values)] for name, values in paper.ABLATIONS.items()]
    reference = Table(f"Ablations: {paper.column_head(evidence.run.has_paper_setting)}", head, theirs, is_folded=True)
    parts = [
        *run,
        *([Table("Not in this report", ["study", "command"], absent, is_folded=True)] if absent else []),
        reference,
    ]
    return ExhibitContent(parts, f"{len(run)} of {len(STUDIES)} studies on this policy")


def _missing_rows(evidence: Evidence) -> list[list[str]]:
    here = [
        [entry.title, f"not run: podium study {name} --recipe {evidence.run.command_arguments}"]
        for name, entry in STUDIES.items()
        if name not in evidence.experiments
    ]
    return here + [
        [f"{name.replace('_', ' ')} (trains another policy)", f"podium study {name}"]
        for name in evidence.training_experiments
    ]
