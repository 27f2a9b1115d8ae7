"""`leaderboard`: the Conductor and every baseline, with uncertainty and cost."""

import dagster as dg

from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.last_result import asked_again, unchanged
from assets.opponents import compared
from assets.recursive_conductor import final_policy
from assets.resources import Podium
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.conductor.policy import policy_key
from ops.core.once import data_version
from ops.evaluation.comparison import comparison_file, outcomes_file


@dg.asset(deps=[worker_pool, worker_responses, baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Compare the Conductor with the cold start, the best worker, a random worker and the oracle, for each benchmark
    and in the mean."""
    setup, policy = podium.load(), final_policy(podium)
    facts = compared(podium, policy, again=asked_again(context))
    files = comparison_file(setup.workspace, policy_key(policy)), outcomes_file(setup.workspace, policy)
    if facts is None:
        return unchanged(context, data_version(*files))
    return dg.MaterializeResult(data_version=dg.DataVersion(data_version(*files)), metadata=facts)
