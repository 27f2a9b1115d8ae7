"""The summary at the end of a run: the table, the training, the promotion, and the next commands."""

from __future__ import annotations

from rich.console import Console

from assets.recursive_conductor import final_policy, training_runs
from assets.report import page_of
from assets.resources import Podium
from ops.benchmarks.registry import training_benchmarks
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BASELINES
from ops.evaluation.comparison import Comparison, read_comparison
from ops.release import mlflow_store, registry
from ops.results.leaderboard import (
    UNCERTAINTY_NOTE,
    Leaderboard,
    build_leaderboard_table,
    build_systems_table,
    format_accuracy,
)
from ops.spending.books import format_usd
from ops.training.guards import check_run_guards
from ops.training.run.training_run import RunResult
from ops.workers.client import CallCounts

STAGES = {"conductor": "Training", "adaptive_conductor": "On subsets", "recursive_conductor": "In rounds"}
STRATEGIES = 5
"""Number of workflow shapes in the full summary."""
CONDUCTOR = "Conductor"
"""The Conductor's name in the leaderboard."""
LABEL = 11
"""Width of a line's label in columns."""
MEANS = f"{UNCERTAINTY_NOTE}. OOD: out of distribution. USD: in-domain."
HINT = "More: --full"


def print_summary(
    console: Console, podium: Podium, calls: CallCounts, seconds: float, job: str = "lifecycle", full: bool = False
) -> bool:
    """Print the results of one of `pipelines.lifecycle.JOBS`; `full`: with each benchmark's scores and the strategies.

    Return whether the gate kept a challenger back.

    Raises `DataError` if the job has not finished.
    """
    console.print()
    if job != "train":
        comparison = read_comparison(podium.load(), final_policy(podium))
        console.print(build_systems_table(comparison.leaderboard))
        console.print(f"{MEANS}{'' if full else f' {HINT}'}\n", style="dim", markup=False)
        _equal_price(console, comparison.leaderboard)
        if full:
            console.print(build_leaderboard_table(comparison.leaderboard))
        _reach(console, comparison, full)
    if job != "evaluate":
        _training(console, podium)
    workspace = podium.load().workspace
    kept_back = print_promotion(console, workspace) if job == "lifecycle" else False
    _line(console, "Workers", f"{_calls(calls)}; {format_usd(calls.usd)} spent")
    _line(console, "Time", f"{seconds / 60:.1f} minutes")
    champion = registry.champion(workspace)
    if job == "lifecycle":
        _line(console, "Page", str(page_of(podium).relative_to(workspace.root)))
    _line(console, "Next", "podium dev   opens the Dagster and MLflow UIs")
    if champion is not None:
        _line(console, "", 'podium ask "…"   asks the champion a question')
    return kept_back


def _line(console: Console, label: str, text: str, style: str = "") -> None:
    """Return a label and its text, which wraps beside the label."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column(width=LABEL, no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(label, Text(text, style=style))
    console.print(line)


def _calls(calls: CallCounts) -> str:
    said = [f"{calls.live:,} calls made" if calls.live else "no call made"]
    counts = {"answered from the cache": calls.cached, "replayed": calls.replayed, "failed": calls.failed}
    return ", ".join(said + [f"{count:,} {what}" for what, count in counts.items() if count])


def _equal_price(console: Console, board: Leaderboard) -> None:
    """Print the best other system at no more than the Conductor's USD a question, in-domain."""
    over = training_benchmarks()
    price = board.mean_cost(CONDUCTOR, over).usd
    no_system = tuple(BASELINES[name].title for name in ("oracle", "random_worker"))
    others = [name for name in board.systems if name != CONDUCTOR and not name.startswith(no_system)]
    if within := [name for name in others if board.mean_cost(name, over).usd <= price]:
        best = max(within, key=lambda name: board.mean_accuracy(name, over).mean)
        ours, theirs = (format_accuracy(board.mean_accuracy(name, over)) for name in (CONDUCTOR, best))
        _line(console, "Equal price", f"Conductor {ours}; the best other at no more USD is {best}, {theirs}")
    else:
        _line(console, "Equal price", "no other system costs as little as the Conductor")


def _reach(console: Console, comparison: Comparison, full: bool) -> None:
    for name, reach in comparison.reach.items():
        _line(
            console,
            name[:1].upper() + name[1:],
            f"some answer of a system is right on {reach.ceiling:.1%} (luck included), and the Conductor's on "
            f"{reach.reached:.1%} of those; "
            f"valid workflows {reach.valid:.1%}, right if valid {reach.right_if_valid:.1%}",
        )
    strategies = comparison.reach["in-domain"].strategies if full and "in-domain" in comparison.reach else ()
    for strategy in strategies[:STRATEGIES]:
        paid = f"; {strategy.paid} answers that no single worker gives" if strategy.paid else ""
        _line(console, "Strategy", f"{strategy.shape} {strategy.share:.1%}, most on {strategy.where}{paid}")
        if strategy.example:
            _line(console, "", strategy.example, "dim")


def _training(console: Console, podium: Podium) -> None:
    for asset, run in training_runs(podium).items():
        if (trained := RunResult.read(run)) is None:
            continue
        _line(
            console,
            STAGES[asset],
            f"mean reward {trained.reward_before:.3f} before, {trained.reward_after:.3f} after {trained.steps} steps "
            f"({trained.rollouts:,} rollouts; their responses cost {format_usd(trained.cost_usd)})",
        )
        if trained.stopped:
            _line(console, "", trained.stopped, "yellow")
        for finding in check_run_guards(podium.load(), run):
            if not finding.passed:
                _line(
                    console, "Guard", f"{finding.guard}: {finding.finding} (threshold: {finding.threshold})", "yellow"
                )


def print_promotion(console: Console, workspace: Workspace) -> bool:
    """Print whether the challenger was promoted, the reasons if not, the current champion, and the command that changes
    it. Return whether the challenger was kept back."""
    champion, challenger = registry.champion(workspace), registry.challenger(workspace)
    kept_back = challenger is not None and (champion is None or champion.version != challenger.version)
    if challenger is not None and kept_back:
        verdict = challenger.tags.get("verdict", "not judged")
        _line(console, "Promotion", f"version {challenger.version} {verdict}", "yellow")
        page = workspace.reports / f"verdict-version-{challenger.version}.html"
        if page.is_file():
            _line(console, "", f"{page.relative_to(workspace.root)}   has every check")
        _line(console, "", f"podium promote {challenger.version} --by NAME --reason WHY   overrides the gate")
    elif champion is not None and champion.tags.get("replaced"):
        _line(console, "Promotion", f"version {champion.version} replaced version {champion.tags['replaced']}")
        _line(console, "", "podium rollback --reason WHY   goes back to it")
    if champion is not None:
        alias = f"models:/{mlflow_store.MODEL}@{mlflow_store.CHAMPION}"
        _line(console, "Champion", f"{alias} is version {champion.version}")
    return kept_back
