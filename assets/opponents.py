"""The opponents that a Conductor is compared with: their scores, the Conductor's cold start, and the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from assets import metadata
from assets.resources import Calls, OnProgress, Podium, servers
from ops.core.charts import png
from ops.core.rows import ResponseRow
from ops.evaluation.comparison import compare
from ops.evaluation.outcomes import write_outcomes
from ops.evaluation.report import accuracy_by_benchmark, reach_tables, tables
from ops.evaluation.runner import Summary, summarize
from ops.evaluation.stored import COLD_START
from ops.precaching.opening import open_client
from ops.precaching.stored import Cell
from ops.retraining.standing import scored_cold_start
from ops.stages.evaluation import score_baselines, score_policy
from ops.stages.responses import answer_evaluation
from ops.training.cold_start.base_policy import base_policy_folder


class OpponentScores(NamedTuple):
    """The scores of the opponents."""

    alone: Mapping[Cell, Sequence[ResponseRow]]
    baselines: Mapping[str, Mapping[str, Summary]]
    """Baseline → benchmark → its score."""
    calls: Calls


def base_of(podium: Podium) -> Path | None:
    """Return the folder of the base policy of this run's Conductor.

    The result is None if the Conductor is a champion or continues from one, and its cold start was not scored on the
    current pool. A pool with other prices is the same pool.
    """
    change, setup = podium.snapshot().change, podium.load()
    return base_policy_folder(setup) if change is None else scored_cold_start(setup, change)


def ask_opponents(podium: Podium, benchmarks: Sequence[str], progress: OnProgress) -> OpponentScores:
    """Call the workers for the missing answers of single workers, the cold start and the baselines."""
    setup = podium.load()
    client, evaluating = open_client(setup, "baseline"), open_client(setup, "evaluation")
    with servers(setup):
        alone = answer_evaluation(setup, client, benchmarks, progress)
        if setup.recipe.cold_start is not None and (policy := base_of(podium)) is not None:
            score_policy(setup, policy, COLD_START, evaluating, benchmarks, progress)
        asked = {name: summarize(rows) for name, rows in score_baselines(setup, client, benchmarks, progress).items()}
    return OpponentScores(alone, asked, Calls.of(client.counts).plus(Calls.of(evaluating.counts)))


def compared(podium: Podium, policy: Path) -> dict[str, dg.MetadataValue]:
    """Compare the policy in that folder by the stored scores, store the comparison, and return its metadata."""
    setup, base = podium.load(), base_of(podium)
    made = compare(setup, policy, base)
    return {
        **{name: metadata.table(*columns) for name, columns in tables(made.board).items() if columns.rows},
        **{name: metadata.table(*columns) for name, columns in reach_tables(made.reach).items() if columns.rows},
        "accuracy": metadata.picture("accuracy", png(accuracy_by_benchmark(made.board))),
        "outcomes": dg.MetadataValue.path(write_outcomes(setup, policy, base)),
    }
