"""Partitions of the data by benchmark. A run covers a range of partitions and makes those of the recipe's benchmarks.

A job has the range of its runs as a tag, so that a person who starts it chooses no partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Recipe
from ops.core.errors import ConfigError

benchmarks = dg.StaticPartitionsDefinition(list(BENCHMARKS))

single_run_backfill = dg.BackfillPolicy.single_run()
"""A backfill policy: one run for all partitions, so that calls to different workers overlap and each process starts
once."""


def tag_all_benchmarks() -> dict[str, str]:
    """Return the run tags of a run over every benchmark."""
    return tag_range(list(BENCHMARKS))


def tag_recipe_benchmarks(recipe: Recipe) -> dict[str, str]:
    """Return the run tags of the smallest range of benchmarks that includes all those of the recipe."""
    return tag_range([name for name in BENCHMARKS if name in recipe.benchmarks])


def has_chosen_partitions(tags: Mapping[str, str]) -> bool:
    """Return whether a run's tags select other partitions than all benchmarks, which is what a job selects."""
    everything = tag_all_benchmarks()
    return "dagster/partition" in tags or any(tags.get(name, value) != value for name, value in everything.items())


def tag_range(names: Sequence[str]) -> dict[str, str]:
    """Return the run tags of the range of partitions from the first to the last of `names`."""
    return {"dagster/asset_partition_range_start": names[0], "dagster/asset_partition_range_end": names[-1]}


def select_recipe_benchmarks(context: dg.AssetExecutionContext, recipe: Recipe) -> list[str]:
    """Return the recipe's benchmarks among the partitions of the run. The metadata of other partitions say that nothing
    was made.

    Raises `ConfigError` if the range contains none of the recipe's benchmarks.
    """
    chosen = [key for key in context.partition_keys if key in recipe.benchmarks]
    if not chosen:
        remedy = "Add it there, or materialize the partitions that the recipe has"
        named = ", ".join(context.partition_keys)
        raise ConfigError(f"recipe {recipe.name!r}", "benchmarks", f"has no {named}", remedy)
    for key in set(context.partition_keys) - set(chosen):
        context.add_asset_metadata({"not_in_recipe": recipe.name}, partition_key=key)
    return chosen
