"""The baselines and their sources."""

from __future__ import annotations

from ops.reports.evidence import Evidence
from ops.reports.exhibit import Shown, Table, exhibit


@exhibit(
    "The opponents, and how they differ from their authors' own",
    140,
    shows="Where each baseline is described, and what is otherwise here: read its figures with that in mind.",
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
