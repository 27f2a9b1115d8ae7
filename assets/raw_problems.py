"""`raw_problems[benchmark]`: the problems of a benchmark's source."""

import dagster as dg

from assets import metadata, partitions
from assets.resources import Podium
from assets.unchanged import AssetStep
from ops import versioning
from ops.stages.problems import materialize_raw


@dg.asset(
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.one_run,
    group_name="data",
    kinds={"python", "dvc"},
)
def raw_problems(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Load training candidates and evaluation questions of each benchmark into one format."""
    setup = podium.load()
    benchmarks = partitions.in_recipe(context, setup.recipe)
    step = AssetStep.of_data(context, podium, "raw_problems", benchmarks)
    if (same := step.unchanged()) is not None:
        return same
    for benchmark in benchmarks:
        raw = materialize_raw(setup, benchmark)
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
    made = versioning.record(setup.workspace, podium.snapshot(), "raw_problems")
    return dg.MaterializeResult(data_version=dg.DataVersion(made), metadata=step.keys())
