"""The opponents that a Conductor is compared with: their scores, the Conductor's cold start, and the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from assets import metadata
from assets.resources import OnProgress, Podium, servers
from ops.core.charts import render_png
from ops.core.response_rows import ResponseRow
from ops.evaluation.comparison import outcomes_file
from ops.evaluation.stored import COLD_START, CONDUCTOR, score_folder
from ops.evaluation.stored_baselines import baselines_folder
from ops.planning.stored import find_unscored
from ops.precaching.opening import open_client
from ops.precaching.stored import WorkerBenchmark, evaluation_folder
from ops.results.leaderboard import build_reach_tables, build_tables, chart_accuracy_by_benchmark
from ops.results.summary import Summary, summarize
from ops.retraining.standing import champion_to_judge_again, scored_cold_start
from ops.stages.comparing import compare_once
from ops.stages.evaluation import are_baselines_scored, is_policy_scored, score_baselines, score_policy
from ops.stages.responses import answer_evaluation_questions, is_evaluation_answered
from ops.training.cold_start.base_policy import base_policy_folder
from ops.workers.client import CallCounts


class OpponentScores(NamedTuple):
    """The scores of the opponents."""

    alone: Mapping[WorkerBenchmark, Sequence[ResponseRow]]
    baselines: Mapping[str, Mapping[str, Summary]]
    """Baseline → benchmark → its score."""
    calls: CallCounts


def base_of(podium: Podium) -> Path | None:
    """Return the folder of the base policy of this run's Conductor, or None.

    It is None if the Conductor is a champion or continues from one, and its cold start was not scored on the current
    pool. A pool that differs in prices only is the same pool.
    """
    change, setup = podium.snapshot().change, podium.load()
    return base_policy_folder(setup) if change is None else scored_cold_start(setup, change)


def opponents_files(podium: Podium) -> list[Path]:
    """Return the folders of the scores that `ask_opponents` stores."""
    workspace, base = podium.load().workspace, base_of(podium)
    taught = [] if base is None else [score_folder(workspace, COLD_START, base)]
    return [evaluation_folder(workspace), baselines_folder(workspace), *taught]


def are_opponents_scored(podium: Podium, benchmarks: Sequence[str]) -> bool:
    """Return whether `ask_opponents` would read stored results only."""
    setup, base = podium.load(), base_of(podium)
    taught = base if setup.recipe.cold_start is not None else None
    return (
        is_evaluation_answered(setup, benchmarks)
        and (taught is None or is_policy_scored(setup, taught, COLD_START, benchmarks))
        and are_baselines_scored(setup, benchmarks)
        and champion_to_judge_again(setup) is None
    )


def ask_opponents(
    podium: Podium, benchmarks: Sequence[str], progress: OnProgress, *, again: bool = False
) -> OpponentScores:
    """Call the workers for the missing answers of single workers, the cold start and the baselines.

    A champion whose scores another version of a grader judged is scored again, from its stored answers, so that the
    gate can compare a challenger with it.
    """
    setup = podium.load()
    client, evaluating = open_client(setup, "baseline"), open_client(setup, "evaluation")
    with servers(setup):
        alone = answer_evaluation_questions(setup, client, benchmarks, progress, force=again)
        if setup.recipe.cold_start is not None and (policy := base_of(podium)) is not None:
            score_policy(setup, policy, COLD_START, evaluating, benchmarks, progress, force=again)
        scored = score_baselines(setup, client, benchmarks, progress, force=again)
        if (champion := champion_to_judge_again(setup)) is not None:
            score_policy(setup, champion, CONDUCTOR, evaluating, find_unscored(setup, champion), progress)
    asked = {name: summarize(rows) for name, rows in scored.items()}
    return OpponentScores(alone, asked, client.counts + evaluating.counts)


def compared(podium: Podium, policy: Path, *, again: bool = False) -> dict[str, dg.MetadataValue] | None:
    """Compare the policy in that folder with its opponents by the stored scores, store the comparison, and return its
    metadata; None if it is stored already."""
    setup = podium.load()
    made = compare_once(setup, policy, base_of(podium), force=again)
    if made is None:
        return None
    return {
        **{name: metadata.table(*columns) for name, columns in build_tables(made.leaderboard).items() if columns.rows},
        **{name: metadata.table(*columns) for name, columns in build_reach_tables(made.reach).items() if columns.rows},
        "accuracy": metadata.picture("accuracy", render_png(chart_accuracy_by_benchmark(made.leaderboard))),
        "outcomes": dg.MetadataValue.path(outcomes_file(setup.workspace, policy)),
    }
