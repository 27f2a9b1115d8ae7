"""`raw_problems[benchmark]`: the problems of a benchmark's source."""

import dagster as dg

from assets import metadata, partitions
from assets.last_result import asked_again, unchanged
from assets.resources import Podium
from ops import versioning
from ops.core.once import data_version
from ops.stages.data import data_files, load_raw_once


@dg.asset(
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.one_run,
    group_name="data",
    kinds={"python", "dvc"},
)
def raw_problems(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Load the training and test questions of each benchmark into one format."""
    setup = podium.load()
    benchmarks = partitions.in_recipe(context, setup.recipe)
    made = {name: load_raw_once(setup, name, force=asked_again(context)) for name in benchmarks}
    versioning.record(setup.workspace, podium.snapshot(), "raw_problems")
    version = data_version(*data_files(setup.workspace, "raw_problems"))
    if not any(made.values()):
        return unchanged(context, version, benchmarks)
    for benchmark, raw in made.items():
        if raw is None:
            unchanged(context, version, [benchmark])
            continue
        facts = {
            "train": len(raw.train),
            "test": len(raw.test),
            "source": setup.recipe.benchmarks[benchmark].source,
            "quarantined": raw.quarantined,
            "failing_gold": raw.failing_gold,
            "examples": metadata.examples(raw.train or raw.test),
        }
        if tests := raw.graded_on:
            facts["graded_on"] = tests
        if raw.quarantine:
            facts["quarantine"] = "\n".join(map(str, raw.quarantine))
        context.add_asset_metadata(facts, partition_key=benchmark)
    return dg.MaterializeResult(data_version=dg.DataVersion(version))
