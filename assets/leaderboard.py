"""`leaderboard`: the Conductor and every baseline, with uncertainty and cost."""

import dagster as dg

from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.opponents import compare_policy
from assets.recursive_conductor import get_final_policy_folder
from assets.resources import RunResource
from ops.conductor.policy import policy_key
from ops.core.once import data_version
from ops.evaluation.comparison import comparison_file, outcomes_file


@dg.asset(deps=[baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Compare the Conductor with the cold start, the best worker, a random worker and the oracle, for each benchmark
    and in the mean."""
    setup, policy = podium.load_setup(), get_final_policy_folder(podium)
    facts = compare_policy(podium, policy, again=is_rebuild_requested(context))
    files = comparison_file(setup.workspace, policy_key(policy)), outcomes_file(setup.workspace, policy)
    if facts is None:
        return report_unchanged(context, data_version(*files))
    return dg.MaterializeResult(data_version=dg.DataVersion(data_version(*files)), metadata=facts)
