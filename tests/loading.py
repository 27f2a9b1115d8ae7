"""A benchmark's problems as the stage takes them: read, and refused where too many rows are malformed."""

from __future__ import annotations

from ops.benchmarks.base import Benchmark
from ops.benchmarks.quarantine import check_malformed_share
from ops.config import BenchmarkSource
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.grading.hidden_tests import hidden_tests_folder


def sound_problems(
    entry: Benchmark, split: Split, source: BenchmarkSource, workspace: Workspace, seed: int
) -> list[Problem]:
    """The split's problems, with hidden tests written beside them. Raises `DataError` and `ConfigError`."""
    loaded = entry.load(split, source, workspace, seed, hidden_tests_folder(workspace.root))
    check_malformed_share(entry, split, loaded, source.max_malformed_share)
    return loaded.problems
