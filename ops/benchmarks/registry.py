"""Name → benchmark, and which of them are trained on: read from the files in `catalogue`."""

from __future__ import annotations

from collections.abc import Iterable

from ops.benchmarks.base import Benchmark
from ops.core.problem import Domain, Problem
from ops.core.registry import Registry

BENCHMARKS = Registry("ops.benchmarks.catalogue", Benchmark, lambda entry: (not entry.trains, entry.place))
"""Those that are trained on first."""


def training_benchmarks(among: Iterable[str] | None = None) -> tuple[str, ...]:
    """The benchmarks with a training split, in order; `among`: those of these names only."""
    wanted = BENCHMARKS if among is None else set(among)
    return tuple(name for name, entry in BENCHMARKS.items() if entry.trains and name in wanted)


def unseen_benchmarks() -> tuple[str, ...]:
    """The benchmarks for evaluation only, in order: nothing of them is ever trained on."""
    return tuple(name for name, entry in BENCHMARKS.items() if not entry.trains)


def training_domains(among: Iterable[str] | None = None) -> tuple[Domain, ...]:
    """The domains of `training_benchmarks`, in order."""
    return tuple(dict.fromkeys(BENCHMARKS[name].domain for name in training_benchmarks(among)))


def graded_on(problems: Iterable[Problem]) -> str:
    """Whether scores on problems of benchmarks that hide tests are of hidden tests; "" where there are none such.

    "public tests only (3 in 2 problems)", or "hidden tests (40, and 3 public ones, in 2 problems)". Embedded
    problems tell and hide nothing: they are graded on all that there is.
    """
    rows = [problem.tests for problem in problems if not problem.family and BENCHMARKS[problem.benchmark].hides_tests]
    if not rows:
        return ""
    hidden, tests = sum(test.hidden for row in rows for test in row), sum(map(len, rows))
    if not hidden:
        return f"public tests only ({tests:,} in {len(rows):,} problems)"
    bare = sum(not any(test.hidden for test in row) for row in rows)
    without = f", {bare:,} of which have public ones only" if bare else ""
    return f"hidden tests ({hidden:,}, and {tests - hidden:,} public ones, in {len(rows):,} problems{without})"
