"""The benchmarks as a table: what `podium data benchmarks` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def benchmark_facts() -> list[dict[str, object]]:
    """Return every benchmark for JSON."""
    from ops.benchmarks.registry import BENCHMARKS

    return [
        {
            "benchmark": name,
            "domain": entry.domain,
            "confidential": entry.confidential,
            "grader": entry.grader,
            "dataset": entry.hub.id,
            "splits": entry.hub.parts,
            "licence": entry.licence,
            "citation": entry.citation,
            "cautions": entry.cautions,
        }
        for name, entry in BENCHMARKS.items()
    ]


def benchmark_table() -> Table:
    """Return every benchmark with its source, splits, kind of question, grading, licence, citation and caveats."""
    from rich.table import Table

    from ops.benchmarks.registry import BENCHMARKS
    from ops.core.problem import ANSWER_FORMAT

    shown = Table(title="Benchmarks", title_justify="left", show_lines=True)
    shown.add_column("benchmark", no_wrap=True)
    for head in ("hub dataset and splits", "asked and graded", "licence and citation", "cautions"):
        shown.add_column(head, overflow="fold", ratio=1)
    for name, entry in BENCHMARKS.items():
        splits = [
            f"{split}: {part.config or 'default'}/{part.split}, {part.rows:,} problems"
            for split, part in entry.hub.parts.items()
        ]
        task = f"{entry.asks}. {ANSWER_FORMAT[entry.grader]}\nGrader: {entry.grader}"
        shown.add_row(
            f"{name}\n({'confidential' if entry.confidential else entry.domain})",
            "\n".join([entry.hub.id, *splits, f"read from {entry.hub.read_from}"]),
            task,
            f"{entry.licence}\n{entry.citation}",
            "\n".join(entry.cautions),
        )
    return shown
