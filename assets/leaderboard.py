"""`leaderboard`: the Conductor and every baseline, with uncertainty and cost."""

import dagster as dg

from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.opponents import compared
from assets.recursive_conductor import final_policy
from assets.resources import Podium
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses


@dg.asset(deps=[worker_pool, worker_responses, baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(podium: Podium) -> dg.MaterializeResult:
    """Per benchmark and in the mean: Conductor, cold start, best and random worker, oracle."""
    return dg.MaterializeResult(metadata=compared(podium, final_policy(podium)))
