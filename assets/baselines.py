"""`baselines[benchmark]`: the systems that the Conductor is compared with, on the same questions."""

import dagster as dg

from assets import gate, metadata, partitions
from assets.base_policy import base_policy
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.opponents import are_opponents_scored, ask_opponents, list_score_folders
from assets.resources import Reporter, RunResource
from assets.training_mix import training_mix
from ops.core.once import data_version
from ops.evaluation.baseline import needs_every_worker
from ops.evaluation.baselines.oracle import estimate_oracles
from ops.precaching.profiles import profile_workers
from ops.results.leaderboard import format_accuracy


@dg.asset(
    deps=[training_mix, base_policy],
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.single_run_backfill,
    group_name="evaluation",
    kinds={"litellm"},
)
def baselines(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Measure the recipe's baselines, and the policy before GRPO, on the test questions.

    If no baseline needs every worker's answers, only the best single worker answers: the promotion gate compares the
    Conductor with it.
    """
    benchmarks, again = (
        partitions.select_recipe_benchmarks(context, podium.load_setup().recipe),
        is_rebuild_requested(context),
    )
    if not again and are_opponents_scored(podium, benchmarks):
        return report_unchanged(context, data_version(*list_score_folders(podium)), benchmarks)
    gate.require_ready(podium, "workers", "evaluation")
    alone, asked, made = ask_opponents(podium, benchmarks, reporter.begin_progress(context), again=again)
    for benchmark in benchmarks:
        rows = [row for cell, responses in alone.items() if cell.benchmark == benchmark for row in responses]
        accuracies = [(worker.worker, metadata.format_percent(worker.overall)) for worker in profile_workers(rows)]
        facts: dict[str, dg.MetadataValue | str] = {
            "workers": metadata.make_table(("worker", "accuracy in %"), accuracies)
        }
        if needs_every_worker(podium.load_setup().recipe.evaluation.baselines):
            facts["oracle"] = metadata.format_oracle(list(estimate_oracles(rows).values()))
        own = {name: summaries[benchmark] for name, summaries in asked.items() if benchmark in summaries}
        if systems := [(name, format_accuracy(each.accuracy), each.values["cost_usd"]) for name, each in own.items()]:
            facts["baselines"] = metadata.make_table(("baseline", "accuracy in %", "USD a question"), systems)
        context.add_asset_metadata(facts, partition_key=benchmark)
    reporter.count_calls(context, made)
    version = dg.DataVersion(data_version(*list_score_folders(podium)))
    return dg.MaterializeResult(data_version=version, metadata=metadata.describe_calls(made))
