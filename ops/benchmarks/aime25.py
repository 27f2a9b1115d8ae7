"""AIME 2025: thirty competition problems with integer answers. Evaluation only."""

from __future__ import annotations

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import Hub, Part
from ops.benchmarks.rows import Row


def from_hub(row: Row) -> Row:
    """Columns problem, answer; the row's number serves as id. Not tried against the live hub."""
    return row.having(id=f"aime25-{row.line}", question=row.values.get("problem"), source="math-ai/aime25")


BENCHMARK = Benchmark(
    name="aime25",
    domain="math",
    grader="math",
    licence="see the dataset's card; the problems belong to the Mathematical Association of America",
    citation="American Invitational Mathematics Examination I and II, 2025",
    cautions=("Thirty questions: one answer is 3.3 points, so a difference below ten points is seldom real.",),
    hub=Hub("math-ai/aime25", {"test": Part(None, "test")}),
    from_hub=from_hub,
)
