"""`leaderboard`: the Conductor beside every baseline, with uncertainty and cost."""

import dagster as dg

from assets import metadata
from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.resources import Podium
from ops.evaluation.report import accuracy_bars, leaderboard_markdown
from ops.evaluation.stage import compare


@dg.asset(deps=[baselines, benchmark_scores], group_name="release", kinds={"python"})
def leaderboard(podium: Podium) -> dg.MaterializeResult:
    """Per benchmark and in the mean: Conductor, cold start, best and random worker, oracle."""
    board = compare(*podium.load()).board
    return dg.MaterializeResult(
        metadata={
            "leaderboard": dg.MetadataValue.md(leaderboard_markdown(board)),
            "accuracy": metadata.picture("accuracy", accuracy_bars(board)),
        }
    )
