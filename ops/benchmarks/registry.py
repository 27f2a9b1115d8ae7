"""Name → benchmark: the one place that knows all seven."""

from __future__ import annotations

from ops.benchmarks import aime25, bigcodebench, gpqa_diamond, livecodebench, math500, mmlu, rlpr
from ops.benchmarks.base import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (math500, mmlu, rlpr, livecodebench, aime25, gpqa_diamond, bigcodebench)
}
