"""The baselines and their sources."""

from __future__ import annotations

from ops.core.errors import format_count
from ops.reports.evidence import Evidence
from ops.reports.exhibit import ExhibitContent, Table, exhibit


@exhibit(
    "The other systems, and how they differ from their authors' versions",
    140,
    shows="Where each baseline is described, and how Podium's version differs from that of its authors.",
    paper="its list of baselines",
    needs=("opponents",),
)
def opponents(evidence: Evidence) -> ExhibitContent:
    """A table of baselines; solo workers need no description."""
    baselines = evidence.list_systems("baseline")
    rows = [[system.title, system.source or "–", system.difference or "–"] for system in baselines]
    workers = len(evidence.list_systems("worker"))
    counted = f"{format_count(len(baselines), 'baseline')} and {format_count(workers, 'worker')} alone"
    table = Table("The baselines", ["system", "described in", "what differs here"], rows, is_folded=True)
    return ExhibitContent([table], counted)
