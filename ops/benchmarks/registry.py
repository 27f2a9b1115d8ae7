"""Name → benchmark, and which of them are trained on: read from the files in `catalogue`."""

from __future__ import annotations

from collections.abc import Iterable

from ops.benchmarks.base import Benchmark
from ops.core.problem import Domain
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
