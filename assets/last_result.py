"""The result of a step that has nothing to do: its last result, with the metadata.

The keys of a step's outputs (`ops.core.once`) decide whether it has something to do, and not Dagster, so that the
command line and the stages of DVC decide in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets import metadata
from ops.workers.client import CallCounts

REBUILD_TAG = "podium/again"
"""The run tag that lets every step of the run do its work again, whatever its value is."""
UNCHANGED = "unchanged"
"""The metadata entry of a result that an earlier run made: since when the output is unchanged."""
_DATA_VERSION = "dagster/data_version"


def is_rebuild_requested(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> bool:
    """Return whether every step is to do its work again, also where its output exists."""
    return REBUILD_TAG in context.run.tags


def report_unchanged(
    context: dg.AssetExecutionContext, version: str, benchmarks: Sequence[str] = ()
) -> dg.MaterializeResult:
    """Return the result of an asset whose output with this data version exists already.

    The metadata are those of the last materialization if it was about the same output. `benchmarks` are the partitions
    of the run; each has metadata of its own.
    """
    facts: dict[str, Any] = {}
    for partition in benchmarks or ("",):
        facts = _last_metadata(context, version, partition)
        if partition:
            context.add_asset_metadata(facts, partition_key=partition)
    context.log.info(f"unchanged {facts[UNCHANGED]}")
    return dg.MaterializeResult(data_version=dg.DataVersion(version), metadata={} if benchmarks else facts)


def _last_metadata(context: dg.AssetExecutionContext, version: str, partition: str) -> dict[str, Any]:
    chosen = dg.AssetRecordsFilter(context.asset_key, asset_partitions=[partition] if partition else None)
    records = context.instance.fetch_materializations(chosen, limit=1).records
    made = records[0].asset_materialization if records else None
    if made is None or (made.tags or {}).get(_DATA_VERSION) != version:
        return {UNCHANGED: "since a command made it"}
    since = _read_text(made.metadata, UNCHANGED) or f"since run {records[0].run_id[:8]}"
    kept = {name: fact for name, fact in made.metadata.items() if not name.startswith("dagster")}
    none = metadata.describe_calls(CallCounts())  # those of the run that did the work are not this run's
    return kept | {name: fact for name, fact in none.items() if name in kept} | {UNCHANGED: since}


def _read_text(facts: Mapping[str, Any], name: str) -> str:
    return str(getattr(facts.get(name, ""), "value", facts.get(name, "")))
