"""`baselines[benchmark]`: the systems that the Conductor is compared with, on the same questions."""

import dagster as dg

from assets import gate, metadata, partitions, placement
from assets.base_policy import base_of, base_policy
from assets.raw_problems import raw_problems
from assets.resources import Calls, Podium, Reporter, servers
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.evaluation.baseline import needs_every_worker
from ops.evaluation.report import percent
from ops.evaluation.runner import summarize
from ops.evaluation.stored import COLD_START
from ops.precaching.opening import open_client
from ops.precaching.profiles import ceiling, profile
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.responses import answer_evaluation


@dg.asset(
    deps=[
        raw_problems,
        worker_pool,
        dg.AssetDep(worker_responses, partition_mapping=dg.AllPartitionMapping()),
        training_mix,
        base_policy,
    ],
    partitions_def=partitions.benchmarks,
    backfill_policy=placement.side_by_side,
    group_name="evaluation",
    kinds={"litellm"},
)
def baselines(
    context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Score the recipe's baselines and the policy before GRPO.

    If no baseline needs every worker's answers, only the best single worker answers: the promotion gate compares the
    Conductor with it.
    """
    gate.ready(podium, "workers", "evaluation")
    setup = podium.load()
    client, evaluating = open_client(setup, "baseline"), open_client(setup, "evaluation")
    benchmarks = partitions.in_recipe(context.partition_keys, setup.recipe)
    progress = reporter.progress(context)
    with servers(setup):
        alone = answer_evaluation(setup, client, benchmarks, progress)
        if setup.recipe.cold_start is not None and (policy := base_of(podium)) is not None:
            score_policy(setup, policy, COLD_START, evaluating, benchmarks, progress)
        asked = {name: summarize(rows) for name, rows in score_baselines(setup, client, benchmarks, progress).items()}
    for benchmark in benchmarks:
        rows = [row for cell, responses in alone.items() if cell.benchmark == benchmark for row in responses]
        accuracies = [(worker.worker, metadata.percent(worker.overall)) for worker in profile(rows)]
        facts: dict[str, dg.MetadataValue | str] = {"workers": metadata.table(("worker", "accuracy in %"), accuracies)}
        if needs_every_worker(setup.recipe.evaluation.baselines):
            facts["oracle"] = metadata.percent(ceiling(rows).get(benchmark))
        own = {name: summaries[benchmark] for name, summaries in asked.items() if benchmark in summaries}
        if systems := [(name, percent(each.accuracy), each.cost_usd) for name, each in own.items()]:
            facts["baselines"] = metadata.table(("baseline", "accuracy in %", "USD a question"), systems)
        context.add_asset_metadata(facts, partition_key=benchmark)
    made = Calls.of(client.counts).plus(Calls.of(evaluating.counts))
    reporter.calls(context, made)
    return dg.MaterializeResult(metadata=metadata.calls(made))
