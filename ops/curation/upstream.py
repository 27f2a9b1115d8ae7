"""Which upstream item a problem is: the name under which releases, splits and copies carry the same question.

Where a benchmark's rule (`Benchmark.upstream`) finds nothing in an id, texts decide.
"""

from __future__ import annotations

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import Problem


def upstream_item(problem: Problem) -> str | None:
    """`DATASET:ITEM`, equal for every copy of one upstream item; None where the id does not tell."""
    entry = BENCHMARKS.get(problem.benchmark)
    rule = entry.upstream if entry else None
    match = rule.pattern.match(problem.id.strip().casefold()) if rule else None
    return f"{rule.dataset}:{match[1]}" if rule and match else None
