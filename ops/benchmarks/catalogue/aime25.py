"""AIME 2025: thirty competition problems with integer answers. Evaluation only.

Hub id and columns were read from inspect-evals 0.26.0 (`aime2025/aime2025.py`); not tried against the
live hub.
"""

from __future__ import annotations

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row


def from_hub(row: Row) -> Row:
    """Convert a row with the columns id, problem and answer."""
    return row.with_values(id=f"aime25-{row.text('id')}", question=row.values.get("problem"), source="math-ai/aime25")


BENCHMARK = Benchmark(
    name="aime25",
    position=50,
    domain="math",
    grader="math",
    task="the problem as published; every answer is an integer from 0 to 999",
    licence="see the dataset's card; the problems belong to the Mathematical Association of America",
    citation="American Invitational Mathematics Examination I and II, 2025",
    cautions=("Thirty questions: one answer is 3.3 points, so a difference below ten points is seldom real.",),
    hub=HubDataset(
        "math-ai/aime25",
        {"test": UpstreamSplit(None, "test", rows=30)},
        columns=("id", "problem", "answer"),
        documented_by="inspect-evals 0.26.0 (aime2025)",
    ),
    from_hub=from_hub,
)
