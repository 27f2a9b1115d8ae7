"""The baselines and their sources."""

from __future__ import annotations

from ops.reports.evidence import Evidence
from ops.reports.exhibit import Shown, Table, exhibit


@exhibit(
    "The other systems, and how they differ from their authors' versions",
    140,
    shows="Where each baseline is described, and how Podium's version differs from that of its authors.",
    paper="its list of baselines",
    needs=("opponents",),
)
def opponents(evidence: Evidence) -> Shown:
    """A table of baselines; solo workers need no description."""
    baselines = evidence.of_kind("baseline")
    rows = [[system.title, system.source or "–", system.differs or "–"] for system in baselines]
    workers = len(evidence.of_kind("worker"))
    table = Table("", ["system", "described in", "what differs here"], rows)
    return Shown([table], f"{len(baselines)} baselines and {workers} workers alone")
