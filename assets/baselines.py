"""`baselines[benchmark]`: what the Conductor is measured against, on the same questions."""

import dagster as dg

from assets import gate, metadata, partitions, placement
from assets.base_policy import base_of, base_policy
from assets.raw_problems import raw_problems
from assets.resources import Calls, Podium, Reporter, servers
from assets.worker_pool import worker_pool
from ops.evaluation.report import percent
from ops.evaluation.runner import summarize
from ops.evaluation.stored import COLD_START
from ops.precaching.opening import open_client
from ops.precaching.profiles import ceiling, profile
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.responses import answer_evaluation


@dg.asset(
    deps=[raw_problems, worker_pool, base_policy],
    partitions_def=partitions.benchmarks,
    backfill_policy=placement.side_by_side,
    group_name="evaluation",
    kinds={"litellm"},
)
def baselines(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Each worker alone (best, random and oracle follow), the policy before GRPO, and the recipe's other baselines."""
    gate.ready(podium, "workers", "evaluation")
    setup = podium.load()
    client = open_client(setup, "baseline")
    benchmarks = partitions.in_recipe(context.partition_keys, setup.recipe)
    progress = reporter.progress(context)
    with servers(setup):
        alone = answer_evaluation(setup, client, benchmarks, progress)
        if setup.recipe.cold_start is not None and (policy := base_of(podium)) is not None:
            score_policy(setup, policy, COLD_START, client, benchmarks, progress)
        asked = {name: summarize(rows) for name, rows in score_baselines(setup, client, benchmarks, progress).items()}
    for benchmark in benchmarks:
        rows = [row for cell, responses in alone.items() if cell.benchmark == benchmark for row in responses]
        accuracies = [(worker.worker, metadata.percent(worker.overall)) for worker in profile(rows)]
        facts = {
            "workers": metadata.table(("worker", "accuracy in %"), accuracies),
            "oracle": metadata.percent(ceiling(rows).get(benchmark)),
        }
        own = {name: made[benchmark] for name, made in asked.items() if benchmark in made}
        if systems := [(name, percent(made.accuracy), made.cost_usd) for name, made in own.items()]:
            facts["baselines"] = metadata.table(("baseline", "accuracy in %", "USD a question"), systems)
        context.add_asset_metadata(facts, partition_key=benchmark)
    reporter.calls(context, Calls.of(client.counts))
    return dg.MaterializeResult(metadata=metadata.calls(client.counts))
