"""`leaderboard`: the Conductor and every baseline, with uncertainty and cost."""

import dagster as dg

from assets import metadata
from assets.base_policy import base_of
from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.recursive_conductor import final_run
from assets.resources import Podium
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.evaluation.comparison import compare
from ops.evaluation.outcomes import write_outcomes
from ops.evaluation.report import accuracy_bars, reach_tables, tables


@dg.asset(deps=[worker_pool, worker_responses, baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(podium: Podium) -> dg.MaterializeResult:
    """Compare Conductor, cold start, best and random worker and oracle, per benchmark and in the mean."""
    setup = podium.load()
    made = compare(setup, final_run(podium) / "policy", base_of(podium))
    outcomes = write_outcomes(setup, final_run(podium) / "policy", base_of(podium))
    board = made.board
    return dg.MaterializeResult(
        metadata={
            **{name: metadata.table(*columns) for name, columns in tables(board).items() if columns.rows},
            **{name: metadata.table(*columns) for name, columns in reach_tables(made.reach).items() if columns.rows},
            "accuracy": metadata.picture("accuracy", accuracy_bars(board)),
            "outcomes": dg.MetadataValue.path(outcomes),
        }
    )
