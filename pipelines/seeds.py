"""The quickstart on several seeds, as a table in docs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assets.resources import Podium
from ops.benchmarks.raw import evaluation_questions
from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.conductor.policy import Conductor
from ops.core.workspace import Workspace
from ops.evaluation.comparison import stored_comparison
from ops.evaluation.report import Leaderboard, percent
from ops.evaluation.runner import evaluate, summarize
from ops.precaching.opening import open_client
from ops.training.cold_start import base_policy_folder
from ops.training.plan import RunResult
from pipelines.pages import write_between
from pipelines.run import live

FILE = Path("docs") / "results.md"
MARK = "<!-- made by `make seeds` -->"


class Outcome(NamedTuple):
    """One seed: its leaderboard, and both policies read greedily."""

    seed: int
    board: Leaderboard
    greedy: Leaderboard
    trained: RunResult


def write_table(workspace: Workspace, seeds: Sequence[int]) -> Path:
    """Run every seed and write the table between its marks in docs/results.md, which it gives. Raises `PodiumError`."""
    outcomes = []
    for seed in seeds:
        live(workspace, "quickstart", seed)
        outcomes.append(_outcome(Podium(root=str(workspace.root), seed=seed)))
    write_between(workspace.root / FILE, MARK, _tables(outcomes))
    return FILE


def _outcome(podium: Podium) -> Outcome:
    from assets.conductor import run_folder

    setup = podium.load()
    recipe = setup.recipe
    folder = run_folder(podium)
    trained = RunResult.read(folder)
    assert trained is not None  # the lifecycle has just ended well
    policies = {"Conductor": folder / "policy", "cold start": base_policy_folder(setup)}
    client = open_client(setup, "evaluation")
    questions = [question for asked in evaluation_questions(setup.workspace, recipe).values() for question in asked]
    settings = recipe.evaluation.model_copy(update={"temperature": 0.0})
    greedy = {}
    for name, policy in policies.items():
        conductor = Conductor.load(policy)
        team = conductor.card.team(setup.pool, setup.workspace.data, recipe.execution, client)
        rows = asyncio.run(evaluate(conductor, questions, team, settings))
        greedy[name] = summarize(rows)
    return Outcome(recipe.seed, stored_comparison(setup, folder / "policy").board, Leaderboard(greedy), trained)


def _tables(outcomes: Sequence[Outcome]) -> str:
    lines = ["| seed | system | in-domain mean | unseen mean | USD a question |", "| --- | --- | --- | --- | --- |"]
    for outcome in outcomes:
        for board, suffix in ((outcome.board, ""), (outcome.greedy, ", greedy")):
            for name in board.systems:
                seen = percent(board.mean(name, training_benchmarks()))
                unseen = percent(board.mean(name, unseen_benchmarks()))
                usd = board.cost(name, training_benchmarks())[1]
                lines.append(f"| {outcome.seed} | {name}{suffix} | {seen} | {unseen} | {usd:.6f} |")
    lines += [
        "",
        "| seed | reward before | after | format compliance | more than one worker |",
        "| --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        scores = [outcome.board.systems["Conductor"][name] for name in training_benchmarks()]
        compliance = sum(score.format_compliance for score in scores) / len(scores)
        several = sum(score.multi_worker_share for score in scores) / len(scores)
        trained = outcome.trained
        lines.append(
            f"| {outcome.seed} | {trained.reward_before:.3f} | {trained.reward_after:.3f} "
            f"| {compliance:.1%} | {several:.1%} |"
        )
    return "\n".join(lines) + "\n"
