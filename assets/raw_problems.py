"""`raw_problems[benchmark]`: the problems of a benchmark's source."""

import dagster as dg

from assets import metadata, partitions
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.resources import RunResource
from ops import versioning
from ops.core.once import data_version
from ops.stages.data import data_files, load_raw_once


@dg.asset(
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.single_run_backfill,
    group_name="data",
    kinds={"python", "dvc"},
)
def raw_problems(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Load the training and test questions of each benchmark into one format."""
    setup = podium.load_setup()
    benchmarks = partitions.select_recipe_benchmarks(context, setup.recipe)
    made = {name: load_raw_once(setup, name, force=is_rebuild_requested(context)) for name in benchmarks}
    versioning.record_stage(setup.workspace, podium.get_snapshot(), "raw_problems")
    version = data_version(*data_files(setup.workspace, "raw_problems"))
    if not any(made.values()):
        return report_unchanged(context, version, benchmarks)
    for benchmark, raw in made.items():
        if raw is None:
            report_unchanged(context, version, [benchmark])
            continue
        facts = {
            "train": len(raw.train),
            "test": len(raw.test),
            "source": setup.recipe.benchmarks[benchmark].source,
            "quarantined": raw.quarantined,
            "failing_gold": raw.failing_gold,
            "examples": metadata.show_examples(raw.train or raw.test),
        }
        if tests := raw.graded_on:
            facts["graded_on"] = tests
        if raw.quarantine:
            facts["quarantine"] = "\n".join(map(str, raw.quarantine))
        context.add_asset_metadata(facts, partition_key=benchmark)
    return dg.MaterializeResult(data_version=dg.DataVersion(version))
