"""`leaderboard`: the Conductor and every baseline, with uncertainty and cost."""

import dagster as dg

from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.opponents import base_of, compared, opponents_files
from assets.recursive_conductor import final_policy
from assets.resources import Podium
from assets.unchanged import AssetStep, data_files
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.conductor.policy import policy_key
from ops.evaluation.comparison import comparison_file, outcomes_file
from ops.evaluation.stored import CONDUCTOR, score_folder


@dg.asset(deps=[worker_pool, worker_responses, baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Per benchmark and in the mean: Conductor, cold start, best and random worker, oracle."""
    workspace, policy = podium.load().workspace, final_policy(podium)
    scores = [*opponents_files(podium), score_folder(workspace, CONDUCTOR, policy)]
    inputs = [*data_files(workspace), policy, *filter(None, [base_of(podium)]), *scores]
    outputs = [comparison_file(workspace, policy_key(policy)), outcomes_file(workspace, policy)]
    step = AssetStep(context, podium, inputs, outputs)
    if (same := step.unchanged()) is not None:
        return same
    return dg.MaterializeResult(metadata={**compared(podium, policy), **step.keys()})
