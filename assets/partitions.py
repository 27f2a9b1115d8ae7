"""The partitions of the data: benchmarks (fixed), workers (dynamic), and their cross product."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks
from ops.config import Recipe
from ops.core.errors import ConfigError
from ops.precaching.stored import Cell

benchmarks = dg.StaticPartitionsDefinition(list(BENCHMARKS))
workers = dg.DynamicPartitionsDefinition(name="worker")
worker_by_benchmark = dg.MultiPartitionsDefinition(
    {"benchmark": dg.StaticPartitionsDefinition(list(training_benchmarks())), "worker": workers}
)
"""Workers × benchmarks with training problems; only these have a shortlist."""

one_run = dg.BackfillPolicy.single_run()
"""One run for all partitions, so that calls to different workers overlap and each process starts once."""


def ranges(keys: Sequence[str], wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Return the fewest (first, last) ranges of the ordered `keys` that cover exactly `wanted`."""
    chosen, spans, start = set(wanted), [], None
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        if key not in chosen:
            continue
        start = start or key
        if following not in chosen:
            spans.append((start, key))
            start = None
    return spans


def sync_workers(instance: dg.DagsterInstance, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Set the dynamic partitions to the pool's workers. Returns the names added and removed."""
    known = instance.get_dynamic_partitions("worker")
    added = [name for name in names if name not in known]
    removed = [name for name in known if name not in names]
    instance.add_dynamic_partitions("worker", added)
    for name in removed:
        instance.delete_dynamic_partition("worker", name)
    return added, removed


def in_recipe(keys: Sequence[str], recipe: Recipe) -> list[str]:
    """Return the benchmarks of a run. Raises `ConfigError` for one that the recipe lacks."""
    if missing := [key for key in keys if key not in recipe.benchmarks]:
        remedy = "Add it there, or materialize the partitions that the recipe has"
        raise ConfigError(f"recipe {recipe.name!r}", "benchmarks", f"has no {', '.join(missing)}", remedy)
    return list(keys)


def cell(key: str) -> Cell:
    """Return worker and benchmark of a key of `worker_by_benchmark`; Dagster joins dimensions in alphabetical order."""
    benchmark, worker = key.split("|")
    return Cell(worker, benchmark)
