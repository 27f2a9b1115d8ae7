"""Score a recipe's baselines (`python -m tests.bench.baselines RECIPE`), into docs/reference.

Needs a training mix and its responses (`podium run RECIPE`). Scores that are stored are not computed again.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from ops.benchmarks.graded import configure_grading
from ops.benchmarks.problem_files import read_evaluation_questions
from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.config import Setup
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.baseline import SoloResponses, collect_scores
from ops.evaluation.stored_baselines import TrainingAnswers, make_score_reader
from ops.planning.estimate import Range
from ops.planning.lengths import read_shortlist
from ops.planning.stored_results import compute_remaining
from ops.precaching.client_setup import open_client
from ops.results.leaderboard import Leaderboard, TableData, format_accuracy
from ops.results.summary import Summary, average_by_question, mean_per_answer
from ops.results.table import Rows
from ops.retraining.estimate import estimate_stages
from ops.stages.evaluation import score_baselines
from ops.stages.responses import answer_evaluation_questions
from ops.workers.pool import reprice_responses
from pipelines.commands.lazy_group import CommandError
from pipelines.commands.options import RECIPE, add_yes_option, dry_run_option, seed_option
from pipelines.confirmation import confirm_spending, show_spending
from pipelines.environment_file import read_environment_file
from pipelines.startup import silence_tools

MARK = "<!-- made by `python -m tests.bench.baselines reproduction` -->"


def write_scores(setup: Setup, yes: bool) -> None:
    """Score the recipe's baselines, and write the table.

    Without `yes` a person is asked before paid workers are called. Raises `PodiumError`.
    """
    workspace = setup.workspace
    configure_grading(setup.recipe, workspace.root, workspace.cache)
    confirm_spending(setup, yes, None if yes else cost(setup))
    client = open_client(setup, "baselines")
    benchmarks = [name for name, own in read_evaluation_questions(workspace, setup.recipe).items() if own]
    alone = [row for rows in answer_evaluation_questions(setup, client, benchmarks).values() for row in rows]
    asked = score_baselines(setup, client, benchmarks)
    answers = SoloResponses(reprice_responses(alone, setup.pool), TrainingAnswers.read(setup).responses)
    names = setup.recipe.evaluation.baselines
    made = {name: collect_scores(answers, [name], make_score_reader(setup)) for name in names or ()}
    replace_marked_text(workspace.root / MEASUREMENTS, MARK, scores_table(made, asked))


def cost(setup: Setup) -> Range:
    """Return the USD that scores which are not stored will cost."""
    return estimate_stages(setup, compute_remaining(setup, read_shortlist(setup))).estimate_baselines().usd


def scores_table(made: Mapping[str, Mapping[str, Mapping[str, Summary]]], asked: Mapping[str, Rows]) -> str:
    """Return the table of baseline → benchmark scores; `asked`: the rows of baselines that call workers, whose calls
    are counted."""
    table = TableData(["system", "in-domain, %", "OOD, %", "USD a question", "tokens", "calls"], [])
    for name, systems in made.items():
        calls = mean_per_answer(average_by_question(asked[name]), "calls") if name in asked else 1.0
        board = Leaderboard(systems)
        for system in systems:
            in_domain, ood = (
                format_accuracy(board.mean_accuracy(system, of())) for of in (training_benchmarks, ood_benchmarks)
            )
            means = board.mean_values(system, training_benchmarks())
            usd, tokens = f"{means['cost_usd']:.6f}", f"{means['tokens']:,.0f}"
            table.rows.append([system, in_domain, ood, usd, tokens, f"{calls:.1f}"])
    return format_markdown_table(*table) + "\n"


@click.command()
@click.argument("recipe", type=RECIPE)
@seed_option
@dry_run_option
@add_yes_option
def main(recipe: str, seed: int | None, dry_run: bool, yes: bool) -> None:
    """Score the recipe's baselines and write the table into a file beside docs/reference/measurements.md."""
    silence_tools()
    try:
        workspace = Workspace.find()
        read_environment_file(workspace)
        setup = Setup.read(workspace, recipe, seed)
        if dry_run:
            show_spending(setup, cost(setup))
            return
        write_scores(setup, yes)
    except PodiumError as error:
        raise CommandError(str(error)) from error
    click.echo(f"written to {MEASUREMENTS.with_suffix('')}")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.baselines")
