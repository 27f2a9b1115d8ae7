"""The summary at the end of a run: the table, the training, the promotion, and the next commands."""

from __future__ import annotations

from rich.console import Console

from assets.recursive_conductor import get_final_policy_folder, list_training_runs
from assets.report import get_page_file
from assets.resources import RunResource
from ops.benchmarks.registry import training_benchmarks
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES
from ops.evaluation.comparison import Comparison, read_comparison
from ops.release import mlflow_store, registry
from ops.release.way_back import describe_way_back
from ops.results.leaderboard import (
    UNCERTAINTY_NOTE,
    Leaderboard,
    build_leaderboard_table,
    build_systems_table,
    format_accuracy,
)
from ops.spending.bookings import format_usd
from ops.training.guards import check_run_guards
from ops.training.run.training_run import RunResult
from ops.workers.client import CallCounts

STAGE_TITLES = {"conductor": "Training", "adaptive_conductor": "On subsets", "recursive_conductor": "In rounds"}
SHOWN_STRATEGIES = 5
"""Number of workflow shapes in the full summary."""
CONDUCTOR_NAME = "Conductor"
"""The Conductor's name in the leaderboard."""
LABEL_WIDTH = 11
"""Width of a line's label in columns."""
LEGEND = f"{UNCERTAINTY_NOTE}. OOD means out of distribution. USD are those of an in-domain question."
FULL_HINT = "--full shows each benchmark."


def print_summary(
    console: Console, podium: RunResource, calls: CallCounts, seconds: float, job: str = "lifecycle", full: bool = False
) -> bool:
    """Print the results of one of `pipelines.lifecycle.JOBS`; `full`: with each benchmark's scores and the strategies.

    Return whether the gate kept a challenger back.

    Raises `DataError` if the job has not finished.
    """
    console.print()
    if job != "train":
        comparison = read_comparison(podium.load_setup(), get_final_policy_folder(podium))
        console.print(build_systems_table(comparison.leaderboard))
        console.print(f"{LEGEND}{'' if full else f' {FULL_HINT}'}\n", style="dim", markup=False)
        _print_equal_price(console, comparison.leaderboard)
        if full:
            console.print(build_leaderboard_table(comparison.leaderboard))
        _print_reach(console, comparison, full)
    if job != "evaluate":
        _print_training(console, podium)
    workspace = podium.load_setup().workspace
    kept_back = print_promotion(console, workspace) if job == "lifecycle" else False
    _print_line(console, "Workers", f"{_format_calls(calls)}; {format_usd(calls.usd)} spent")
    _print_line(console, "Time", f"{seconds / 60:.1f} minutes")
    champion = registry.find_champion(workspace)
    if job == "lifecycle":
        _print_line(console, "Page", str(get_page_file(podium).relative_to(workspace.root)))
    _print_line(console, "Next", "podium dev   opens the Dagster and MLflow UIs")
    if champion is not None:
        _print_line(console, "", 'podium ask "…"   asks the champion a question')
    return kept_back


def _print_line(console: Console, label: str, text: str, style: str = "") -> None:
    """Print a label and its text, which wraps beside the label."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column(width=LABEL_WIDTH, no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(label, Text(text, style=style))
    console.print(line)


def _format_calls(calls: CallCounts) -> str:
    said = [f"{calls.live:,} calls made" if calls.live else "no call made"]
    counts = {"answered from the cache": calls.cached, "replayed": calls.replayed, "failed": calls.failed}
    return ", ".join(said + [f"{count:,} {what}" for what, count in counts.items() if count])


def _print_equal_price(console: Console, board: Leaderboard) -> None:
    """Print the best other system at no more than the Conductor's USD a question, in-domain."""
    over = training_benchmarks()
    price = board.mean_values(CONDUCTOR_NAME, over)["cost_usd"]
    no_system = tuple(BASELINES[name].title for name in ("oracle", "random_worker"))
    others = [name for name in board.systems if name != CONDUCTOR_NAME and not name.startswith(no_system)]
    if within := [name for name in others if board.mean_values(name, over)["cost_usd"] <= price]:
        best = max(within, key=lambda name: board.mean_accuracy(name, over).mean)
        ours, theirs = (
            f"{format_accuracy(board.mean_accuracy(name, over))}{board.describe_invalid(name, over)}"
            for name in (CONDUCTOR_NAME, best)
        )
        said = f"Of the other systems that cost no more than the Conductor ({ours}), {best} is the best ({theirs})."
        _print_line(console, "Equal price", said)
    else:
        _print_line(console, "Equal price", "No other system costs as little as the Conductor.")


def _print_reach(console: Console, comparison: Comparison, full: bool) -> None:
    for name, reach in comparison.reach.items():
        _print_line(
            console,
            name[:1].upper() + name[1:],
            f"On {reach.ceiling:.1%} of the questions at least one system gave a right answer, partly by luck. The "
            f"Conductor is right on {reach.reached:.1%} of these. {reach.valid:.1%} of its workflows are valid, and "
            f"{reach.right_if_valid:.1%} of the valid ones end in a right answer.",
        )
    strategies = comparison.reach["in-domain"].strategies if full and "in-domain" in comparison.reach else ()
    for strategy in strategies[:SHOWN_STRATEGIES]:
        alone = f"; it solved {strategy.paid} questions that no single worker solved" if strategy.paid else ""
        said = f"{strategy.shape} is the form of {strategy.share:.1%} of the workflows, most often on {strategy.where}"
        _print_line(console, "Strategy", f"{said}{alone}")
        if strategy.example:
            _print_line(console, "", strategy.example, "dim")


def _print_training(console: Console, podium: RunResource) -> None:
    for asset, run in list_training_runs(podium).items():
        if (trained := RunResult.read(run)) is None:
            continue
        _print_line(
            console,
            STAGE_TITLES[asset],
            f"mean reward {trained.reward_before:.3f} before, {trained.reward_after:.3f} after {trained.steps} steps "
            f"({trained.rollouts:,} rollouts, {format_usd(trained.rollouts_usd)} without the cache)",
        )
        if trained.stopped:
            _print_line(console, "", trained.stopped, "yellow")
        for finding in check_run_guards(podium.load_setup(), run):
            if not finding.passed:
                _print_line(
                    console, "Guard", f"{finding.guard}: {finding.finding} (threshold: {finding.threshold})", "yellow"
                )


def print_promotion(console: Console, workspace: Workspace) -> bool:
    """Print whether the challenger was promoted, the reasons if not, the current champion, and the command that changes
    it. Return whether the challenger was kept back."""
    champion, challenger = registry.find_champion(workspace), registry.find_challenger(workspace)
    kept_back = challenger is not None and (champion is None or champion.version != challenger.version)
    if challenger is not None and kept_back:
        verdict = challenger.tags.get("verdict", "not judged")
        _print_line(console, "Promotion", f"version {challenger.version} {verdict}", "yellow")
        page = workspace.reports / f"verdict-version-{challenger.version}.html"
        if page.is_file():
            _print_line(console, "", f"{page.relative_to(workspace.root)}   shows every check")
        _print_line(console, "", f"podium promote {challenger.version} --by NAME --reason WHY   overrides the gate")
    elif champion is not None and champion.tags.get("replaced"):
        _print_line(console, "Promotion", f"version {champion.version} replaced version {champion.tags['replaced']}")
        _print_line(console, "", describe_way_back(workspace).replace("`", ""))
    if champion is not None:
        alias = f"models:/{mlflow_store.MODEL_NAME}@{mlflow_store.CHAMPION}"
        _print_line(console, "Champion", f"{alias} is version {champion.version}")
    return kept_back
