"""MMLU: four choices, 57 subjects; auxiliary questions to train on, the test questions held out."""

from __future__ import annotations

import string

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import Hub, Part
from ops.benchmarks.rows import Row


def from_hub(row: Row) -> Row:
    """Columns question, choices, answer (0–3), subject; the row's number is the id. Not tried on the hub."""
    place = row.values.get("answer")
    letter = string.ascii_uppercase[place] if isinstance(place, int) and 0 <= place < 26 else place
    return row.having(id=f"mmlu-{row.line}", answer=letter, source="cais/mmlu")


BENCHMARK = Benchmark(
    name="mmlu",
    domain="mmlu",
    grader="choice",
    licence="MIT",
    citation="Hendrycks et al. 2021, arXiv:2009.03300",
    cautions=(
        "The auxiliary training questions come from other exams and mostly carry no subject.",
        "A few per cent of the test questions are mislabelled.",
    ),
    hub=Hub("cais/mmlu", {"train": Part("all", "auxiliary_train"), "test": Part("all", "test")}),
    from_hub=from_hub,
)
