"""The summary at a run's end: the table, the training, the promotion, and the commands that come next."""

from __future__ import annotations

from rich.console import Console

from assets.recursive_conductor import final_run, training_runs
from assets.resources import Calls, Podium
from ops.benchmarks.registry import training_benchmarks
from ops.core.workspace import Workspace
from ops.evaluation.comparison import Comparison, stored_comparison
from ops.evaluation.report import leaderboard_table, percent
from ops.release import registry
from ops.spending.money import usd
from ops.stages.guards import guard_run
from ops.training.run.plan import RunResult

STAGES = {"conductor": "Training", "adaptive_conductor": "On subsets", "recursive_conductor": "In rounds"}
STRATEGIES = 5
"""Shapes of workflows that the ending names."""


def print_summary(console: Console, podium: Podium, calls: Calls, seconds: float, job: str = "lifecycle") -> None:
    """What one of `pipelines.lifecycle.JOBS` came to. Raises `DataError` when it has not been run to its end."""
    console.print()
    if job != "train":
        comparison = stored_comparison(podium.load(), final_run(podium) / "policy")
        console.print(leaderboard_table(comparison.board))
        _reach(console, comparison)
    if job != "evaluate":
        _training(console, podium)
    champion = registry.champion(podium.load().workspace)
    if job == "lifecycle":
        print_promotion(console, podium.load().workspace)
    live = f"{calls.live:,} calls made" if calls.live else "no call made"
    console.print(
        f"Workers     {live}, {calls.cached:,} answered from the cache, {calls.replayed:,} replayed, "
        f"{calls.failed:,} failed; {usd(calls.usd)} spent in this run"
    )
    console.print(f"Time        {seconds / 60:.1f} minutes")
    console.print()
    console.print("podium dev                the Dagster UI and the MLflow registry")
    if champion is not None:
        console.print('podium ask "…"            ask the champion a question', markup=False)


def _reach(console: Console, comparison: Comparison) -> None:
    for name, reach in comparison.reach.items():
        console.print(
            f"{name.capitalize():11} at least one worker solves {reach.ceiling:.1%}, the Conductor solves "
            f"{reach.reached:.1%} of those; {reach.valid:.1%} of its workflows are valid, and "
            f"{reach.right_if_valid:.1%} of the valid ones are right"
        )
    board = comparison.board
    for system in board.systems:
        if system == "Conductor" or comparison.best_worker in system:
            accuracy, cost = board.mean(system, training_benchmarks()), board.cost(system, training_benchmarks())[1]
            console.print(f"Price       {system}: {percent(accuracy)} % in-domain for {usd(cost)} a question")
    for strategy in comparison.reach["in-domain"].strategies[:STRATEGIES] if "in-domain" in comparison.reach else ():
        paid = f"; {strategy.paid} answers that no single worker gives" if strategy.paid else ""
        console.print(f"Strategy    {strategy.shape} {strategy.share:.1%}, most on {strategy.where}{paid}")
        if strategy.example:
            console.print(f"            {strategy.example}", style="dim", markup=False)


def _training(console: Console, podium: Podium) -> None:
    for asset, folder in training_runs(podium).items():
        name = STAGES[asset]
        if (trained := RunResult.read(folder)) is None:
            continue
        console.print(
            f"{name:11} reward {trained.reward_before:.3f} before, {trained.reward_after:.3f} after "
            f"{trained.steps} steps ({trained.rollouts:,} rollouts; responses worth {usd(trained.cost_usd)})"
        )
        if trained.stopped:
            console.print(f"            {trained.stopped}", style="yellow", markup=False)
        for finding in guard_run(podium.load(), folder):
            if not finding.passed:
                line = f"Guard       {finding.guard}: {finding.saw} (threshold: {finding.threshold})"
                console.print(line, style="yellow", markup=False)


def print_promotion(console: Console, workspace: Workspace) -> None:
    """Whether the challenger is champion or why not, who is champion, and the command that changes it."""
    champion, challenger = registry.champion(workspace), registry.challenger(workspace)
    if challenger is not None and (champion is None or champion.version != challenger.version):
        verdict = challenger.tags.get("verdict", "not judged")
        console.print(f"Promotion   version {challenger.version} {verdict}", style="yellow", markup=False)
        again = f"podium promote {challenger.version} --by NAME --reason WHY"
        console.print(f"            `{again}` promotes it in spite of that", markup=False)
    elif champion is not None and champion.tags.get("replaced"):
        console.print(f"Promotion   version {champion.version} replaced version {champion.tags['replaced']}")
        console.print("            `podium rollback --reason WHY` goes back", markup=False)
    if champion is not None:
        console.print(f"Champion    models:/{registry.MODEL}@{registry.CHAMPION} is version {champion.version}")
