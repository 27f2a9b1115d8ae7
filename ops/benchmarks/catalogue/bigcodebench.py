"""BigCodeBench hard, complete: 148 library-heavy functions judged by unit tests. Evaluation only.

Hub id, split and columns were read from bigcodebench 0.2.5 (`data/bigcodebench.py`) and inspect-evals
0.26.0; not tried against the live hub.
"""

from __future__ import annotations

import re

from ops.benchmarks.base import Benchmark, UpstreamItem
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row


def from_hub(row: Row) -> Row:
    """Convert a row with the columns task_id, complete_prompt, code_prompt, canonical_solution and test."""
    return row.with_values(
        id=row.values.get("task_id"),
        question=row.values.get("complete_prompt"),
        answer=row.values.get("canonical_solution"),
        tests={"kind": "unittest", "code": row.values.get("test")},
        source="bigcode/bigcodebench-hard",
    )


def adapt(row: Row) -> Row:
    """Ask for the completion of the documented function, and make the gold answer a whole program."""
    prompt = row.text_or_empty("complete_prompt")
    question = f"Complete this program:\n```python\n{prompt.strip()}\n```" if prompt else row.values.get("question")
    return row.with_values(question=question, answer=row.text_or_empty("code_prompt") + row.text("answer"))


BENCHMARK = Benchmark(
    name="bigcodebench",
    position=70,
    domain="code",
    grader="code",
    task="the documented function to complete, as a program",
    licence="Apache-2.0",
    citation="Zhuo et al. 2024, arXiv:2406.15877",
    cautions=(
        "Its tests import some eighty libraries: where they are not installed, right programs fail.",
        "Some tests reach for the network, which the sandbox refuses.",
    ),
    hub=HubDataset(
        "bigcode/bigcodebench-hard",
        {"test": UpstreamSplit(None, "v0.1.4", rows=148)},
        columns=("task_id", "complete_prompt", "code_prompt", "canonical_solution", "test"),
        documented_by="bigcodebench 0.2.5 (data/bigcodebench.py), inspect-evals 0.26.0 (bigcodebench)",
    ),
    from_hub=from_hub,
    adapt=adapt,
    upstream=UpstreamItem("BigCodeBench", re.compile(r"bigcodebench/(\d+)$")),
)
