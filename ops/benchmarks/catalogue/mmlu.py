"""MMLU: four choices, 57 subjects; auxiliary questions to train on, the test questions held out.

Hub id, configuration and columns were read from nanochat's `tasks/mmlu.py` and inspect-evals 0.26.0
(`mmlu/mmlu.py`); not tried against the live hub.
"""

from __future__ import annotations

import re
import string

from ops.benchmarks.base import Benchmark, UpstreamItem
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row


def from_hub(row: Row) -> Row:
    """Convert a row with the columns question, choices, answer (0 to 3) and subject; the id is the split and the row's
    number."""
    place = row.text("answer")
    letter = string.ascii_uppercase[int(place)] if place in ("0", "1", "2", "3") else place
    return row.with_values(id=f"mmlu-{row.source_name}-{row.number}", answer=letter, source="cais/mmlu")


BENCHMARK = Benchmark(
    name="mmlu",
    position=20,
    domain="mmlu",
    grader="choice",
    task="the question and its four choices as A) to D)",
    licence="MIT",
    citation="Hendrycks et al. 2021, arXiv:2009.03300",
    cautions=(
        "The auxiliary training questions come from other exams and mostly carry no subject.",
        "A few per cent of the test questions are mislabelled.",
    ),
    hub=HubDataset(
        "cais/mmlu",
        {
            "train": UpstreamSplit("all", "auxiliary_train", rows=99_842),
            "test": UpstreamSplit("all", "test", rows=14_042),
        },
        columns=("question", "subject", "choices", "answer"),
        documented_by="nanochat (tasks/mmlu.py), inspect-evals 0.26.0 (mmlu)",
    ),
    from_hub=from_hub,
    # Split, subject and place; a bare row number is not enough.
    upstream=UpstreamItem("MMLU", re.compile(r"mmlu-((?:dev|val|validation|test)-[a-z_]+-\d+)$")),
)
