"""The opponents that a Conductor is compared with: their scores, the Conductor's cold start, and the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from assets import metadata
from assets.resources import OnProgress, RunResource, serve_local_workers
from ops.core.charts import render_png
from ops.core.response_rows import ResponseRow
from ops.evaluation.comparison import outcomes_file
from ops.evaluation.stored_baselines import baselines_folder
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, score_folder
from ops.planning.stored_results import find_unscored
from ops.precaching.client_setup import open_client
from ops.precaching.stored_profiles import WorkerBenchmark, evaluation_folder
from ops.results.leaderboard import build_reach_tables, build_tables, chart_accuracy_by_benchmark
from ops.results.summary import Summary, summarize
from ops.retraining.standing import find_champion_to_rescore, find_scored_cold_start
from ops.stages.comparing import compare_once
from ops.stages.evaluation import are_baselines_scored, is_policy_scored, score_baselines, score_policy
from ops.stages.responses import answer_evaluation_questions, is_evaluation_answered
from ops.training.cold_start.base_policy import base_policy_folder
from ops.workers.client import CallCounts


class OpponentScores(NamedTuple):
    """The scores of the opponents."""

    workers: Mapping[WorkerBenchmark, Sequence[ResponseRow]]
    baselines: Mapping[str, Mapping[str, Summary]]
    """Baseline → benchmark → its score."""
    calls: CallCounts


def find_base_policy(podium: RunResource) -> Path | None:
    """Return the folder of the base policy of this run's Conductor, or None.

    It is None if the Conductor is a champion or continues from one, and its cold start was not scored on the current
    pool. A pool that differs in prices only is the same pool.
    """
    change, setup = podium.get_snapshot().change, podium.load_setup()
    return base_policy_folder(setup) if change is None else find_scored_cold_start(setup, change)


def list_score_folders(podium: RunResource) -> list[Path]:
    """Return the folders of the scores that `ask_opponents` stores."""
    workspace, base = podium.load_setup().workspace, find_base_policy(podium)
    taught = [] if base is None else [score_folder(workspace, COLD_START, base)]
    return [evaluation_folder(workspace), baselines_folder(workspace), *taught]


def are_opponents_scored(podium: RunResource, benchmarks: Sequence[str]) -> bool:
    """Return whether `ask_opponents` would read stored results only."""
    setup, base = podium.load_setup(), find_base_policy(podium)
    taught = base if setup.recipe.cold_start is not None else None
    return (
        is_evaluation_answered(setup, benchmarks)
        and (taught is None or is_policy_scored(setup, taught, COLD_START, benchmarks))
        and are_baselines_scored(setup, benchmarks)
        and find_champion_to_rescore(setup) is None
    )


def ask_opponents(
    podium: RunResource, benchmarks: Sequence[str], progress: OnProgress, *, again: bool = False
) -> OpponentScores:
    """Call the workers for the missing answers of single workers, the cold start and the baselines.

    A champion whose scores another version of a grader judged is scored again, from its stored answers, so that the
    gate can compare a challenger with it.
    """
    setup = podium.load_setup()
    client, evaluating = open_client(setup, "baseline"), open_client(setup, "evaluation")
    with serve_local_workers(setup):
        alone = answer_evaluation_questions(setup, client, benchmarks, progress, force=again)
        if setup.recipe.cold_start is not None and (policy := find_base_policy(podium)) is not None:
            score_policy(setup, policy, COLD_START, evaluating, benchmarks, progress, force=again)
        scored = score_baselines(setup, client, benchmarks, progress, force=again)
        if (champion := find_champion_to_rescore(setup)) is not None:
            score_policy(setup, champion, CONDUCTOR, evaluating, find_unscored(setup, champion), progress)
    asked = {name: summarize(rows) for name, rows in scored.items()}
    return OpponentScores(alone, asked, client.counts + evaluating.counts)


def compare_policy(podium: RunResource, policy: Path, *, again: bool = False) -> dict[str, dg.MetadataValue] | None:
    """Compare the policy in that folder with its opponents by the stored scores, store the comparison, and return its
    metadata; None if it is stored already."""
    setup = podium.load_setup()
    made = compare_once(setup, policy, find_base_policy(podium), force=again)
    if made is None:
        return None
    tables = build_tables(made.leaderboard) | build_reach_tables(made.reach)
    conductor = next(iter(made.leaderboard.systems.values()))
    return {
        **metadata.describe_scores(conductor.values()),
        **{name: metadata.make_table(*columns) for name, columns in tables.items() if columns.rows},
        "accuracy_by_benchmark": metadata.embed_png(
            "accuracy", render_png(chart_accuracy_by_benchmark(made.leaderboard))
        ),
        "outcomes": dg.MetadataValue.path(outcomes_file(setup.workspace, policy)),
    }
