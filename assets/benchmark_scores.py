"""`benchmark_scores[benchmark]`: the trained Conductor's scores on held-out questions."""

from collections import Counter

import dagster as dg

from assets import gate, metadata, partitions, placement
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.recursive_conductor import get_final_policy_folder, recursive_conductor
from assets.resources import Reporter, RunResource, serve_local_workers
from ops.benchmarks.problem_files import describe_evaluation_tests
from ops.core.charts import render_png
from ops.core.once import data_version
from ops.evaluation.stored_scores import CONDUCTOR, score_folder
from ops.precaching.client_setup import open_client
from ops.results.leaderboard import chart_worker_use, format_accuracy, format_interval
from ops.results.measures import MEASURES
from ops.results.summary import summarize
from ops.results.table import concatenate_rows
from ops.stages.evaluation import is_policy_scored, score_policy
from ops.workflow.strategy import measure_diversity

_NAMES = {name: f"{name}_a_question" for name in ("tokens", "calls", "usd")}
"""The names in the metadata of measures whose own name says no unit."""


@dg.asset(
    deps=[recursive_conductor],
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.single_run_backfill,
    group_name="evaluation",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"huggingface", "litellm"},
)
def benchmark_scores(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Measure the accuracy, tokens, USD and latency of the Conductor on the test questions."""
    setup, policy, progress = podium.load_setup(), get_final_policy_folder(podium), reporter.begin_progress(context)
    benchmarks = partitions.select_recipe_benchmarks(context, setup.recipe)
    folder, again = score_folder(setup.workspace, CONDUCTOR, policy), is_rebuild_requested(context)
    if not again and is_policy_scored(setup, policy, CONDUCTOR, benchmarks):
        return report_unchanged(context, data_version(folder), benchmarks)
    gate.require_ready(podium, "workers", "evaluation")
    client = open_client(setup, "evaluation")
    with serve_local_workers(setup):
        scores = score_policy(setup, policy, CONDUCTOR, client, benchmarks, progress, force=again)
    rows = concatenate_rows(scores.values())
    summaries = summarize(rows)
    for benchmark, summary in summaries.items():
        facts = {
            "accuracy": f"{format_accuracy(summary.accuracy)} %, {summary.rows} questions",
            "accuracy_percent": 100 * summary.accuracy.mean,
            "interval_95_percent": format_interval(summary.accuracy),
            **{_NAMES.get(each.key, each.key): summary.values[each.name] for each in MEASURES},
            "mean_steps": summary.steps,
            "valid_workflows_percent": 100 * summary.format_compliance,
            "more_than_one_worker": summary.multi_worker_share,
            "patterns": len(summary.patterns),
            "diversity_bits": measure_diversity(Counter(summary.patterns).elements()).entropy,
        }
        if tests := describe_evaluation_tests(setup.workspace, setup.recipe, benchmark):
            facts["graded_on"] = tests
        context.add_asset_metadata(metadata.round_floats(facts), partition_key=benchmark)
    reporter.count_calls(context, client.counts)
    use = metadata.embed_png("worker use by domain", render_png(chart_worker_use(rows)))
    return dg.MaterializeResult(
        data_version=dg.DataVersion(data_version(folder)),
        metadata={"worker_use": use, **metadata.describe_calls(client.counts)},
    )
