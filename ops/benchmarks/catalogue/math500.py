"""MATH500: competition mathematics, LaTeX answers; 300 to train on, 100 held out (arXiv:2512.04388, A.1).

Hub id and columns were read from public loaders of the dataset; not tried against the live hub.
"""

from __future__ import annotations

import re

from ops.benchmarks.base import Benchmark, UpstreamItem
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row


def from_hub(row: Row) -> Row:
    """Convert a row with the columns problem, answer, subject, level and unique_id (the path of the row in MATH)."""
    return row.with_values(
        id=row.values.get("unique_id"), question=row.values.get("problem"), source="HuggingFaceH4/MATH-500"
    )


BENCHMARK = Benchmark(
    name="math500",
    position=10,
    domain="math",
    grader="math",
    task="the problem as published",
    licence="MIT",
    citation="Hendrycks et al. 2021, arXiv:2103.03874; subset of Lightman et al. 2023, arXiv:2305.20050",
    cautions=(
        "MATH500 is a part of MATH's test set: rows taken from MATH's train set are disjoint from it.",
        "The hub's 500 rows are cut by a fixed shuffle: 100 held out, 300 to train on.",
    ),
    hub=HubDataset(
        "HuggingFaceH4/MATH-500",
        {
            "test": UpstreamSplit(None, "test", 0, 100, rows=100),
            "train": UpstreamSplit(None, "test", 100, 300, rows=300),
        },
        columns=("problem", "answer", "subject", "level", "unique_id"),
        documented_by="published loaders of the dataset (evalhub, appier-research/llm-calibration)",
    ),
    from_hub=from_hub,
    # MATH's own file names, which MATH500 keeps (`unique_id`): MATH500 lies inside MATH test.
    upstream=UpstreamItem("MATH", re.compile(r"(?:^|.*[/-])((?:train|test)/[a-z_]+/\d+)(?:\.json)?$")),
)
