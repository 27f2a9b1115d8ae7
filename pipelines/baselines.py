"""Tables of the baselines for docs: descriptions, and scores and costs in a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.benchmarks.store import evaluation_questions
from ops.config import Setup
from ops.core.documents import MEASUREMENTS, markdown_table, write_between
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES, Answers, Baseline, WorkflowBaseline, needs_every_worker, standings
from ops.evaluation.report import Columns, Leaderboard, percent
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import Summary
from ops.evaluation.stored_baselines import TrainingAnswers, kept
from ops.grading import configure
from ops.planning.estimate import Range
from ops.planning.lengths import stored_shortlist
from ops.planning.stored import left
from ops.precaching.opening import open_client
from ops.retraining.estimate import stages
from ops.stages.evaluation import score_baselines
from ops.stages.responses import answer_evaluation
from ops.workers.pool import at_prices
from pipelines.asking import confirm_spending, show_spending

SCORES_MARK = "<!-- made by `podium baselines --score reproduction` -->"
SIZES = (2, 9)
"""Sizes of the pools for which the page shows the number of calls."""


def registry_table() -> str:
    """Return every baseline with its calls, its source, and its differences from the authors' version."""
    head = ["baseline", "column", "calls a question", "source", "what differs"]
    return markdown_table(head, [_cells(entry) for entry in BASELINES.values()]) + "\n"


def registry_facts() -> list[dict[str, object]]:
    """Return every baseline for JSON."""
    return [
        {
            "baseline": entry.name,
            "title": entry.title,
            "usual": entry.usual,
            "source": getattr(entry, "source", None),
            "differs": getattr(entry, "differs", None),
        }
        for entry in BASELINES.values()
    ]


def _cells(entry: Baseline) -> list[str | int | float]:
    own = (f"`{entry.name}`", entry.title)
    if not isinstance(entry, WorkflowBaseline):
        whose = "every worker's" if needs_every_worker([entry.name]) else "that worker's"
        return [*own, "none more", f"computed from {whose} own answers", "–"]
    few, many = (f"{entry.calls(workers):.0f}" for workers in SIZES)
    learning = f"; first {entry.learning(SIZES[1]):,.0f} to the mix" if entry.learning(SIZES[1]) else ""
    return [*own, f"{few if few == many else f'{few} to {many}'}{learning}", entry.source, entry.differs]


def write_scores(workspace: Workspace, recipe: str, seed: int | None = None, yes: bool = True) -> Path:
    """Score the recipe's baselines unless stored, and write the scores into docs/reference.

    Needs a mix with the workers' responses. Without `yes` a person is asked before paid workers are called. Raises
    `PodiumError`.
    """
    setup = Setup.read(workspace, recipe, seed)
    configure(setup.recipe.grading, workspace.root, workspace.cache, setup.recipe.own_graders)
    confirm_spending(setup, yes, None if yes else _cost(setup))
    client = open_client(setup, "baselines")
    benchmarks = [name for name, own in evaluation_questions(workspace, setup.recipe).items() if own]
    alone = [row for rows in answer_evaluation(setup, client, benchmarks).values() for row in rows]
    asked = score_baselines(setup, client, benchmarks)
    answers = Answers(at_prices(alone, setup.pool), TrainingAnswers.read(setup).responses)
    names = setup.recipe.evaluation.baselines
    made = {name: standings(answers, [name], kept(setup)) for name in names or ()}
    write_between(workspace.root / MEASUREMENTS, SCORES_MARK, scores_table(made, asked))
    return MEASUREMENTS


def show_cost(workspace: Workspace, recipe: str, seed: int | None = None) -> None:
    """Print what `write_scores` costs, without a call. Raises `PodiumError`."""
    setup = Setup.read(workspace, recipe, seed)
    show_spending(setup, _cost(setup))


def _cost(setup: Setup) -> Range:
    return stages(setup, left(setup, stored_shortlist(setup))).baselines().usd


def scores_table(
    made: Mapping[str, Mapping[str, Mapping[str, Summary]]], asked: Mapping[str, Sequence[OutcomeRow]]
) -> str:
    """Return the table of baseline → benchmark scores; `asked`: the rows of baselines that call workers, whose calls
    are counted."""
    table = Columns(["system", "in-domain, %", "OOD, %", "USD a question", "tokens", "calls"], [])
    for name, systems in made.items():
        calls = fmean(len(row.usage) for row in asked[name]) if name in asked else 1.0
        board = Leaderboard(systems)
        for system in systems:
            in_domain, ood = (percent(board.mean(system, of())) for of in (training_benchmarks, unseen_benchmarks))
            tokens, usd = board.cost(system, training_benchmarks())
            table.rows.append([system, in_domain, ood, f"{usd:.6f}", f"{tokens:,.0f}", f"{calls:.1f}"])
    return markdown_table(*table) + "\n"
