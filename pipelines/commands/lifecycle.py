"""`podium run`, `train`, `evaluate`, `dev`: the pipeline's stages in this process, and its two web interfaces."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.init import open_or_create_workspace
from pipelines.commands.options import (
    EXIT_NOT_PROMOTED,
    add_recipe_argument,
    add_yes_option,
    dry_run_option,
    find_workspace_or_defaults,
    seed_option,
)
from pipelines.termination import exit_interrupted

full_option = click.option(
    "--full", is_flag=True, help="Also show the scores of each benchmark and the most frequent workflows."
)


@click.command(
    cls=Command,
    examples=(
        ("Run the pipeline in the synthetic environment with another seed.", "podium run quickstart --seed 2"),
        ("Show what the pilot would call and cost with the models of Anthropic.",
         "podium run pilot --pool anthropic --dry-run"),
    ),
)  # fmt: skip
@add_recipe_argument
@seed_option
@full_option
@dry_run_option
@add_yes_option
def run(recipe: str, seed: int | None, full: bool, dry_run: bool, yes: bool) -> None:
    """Run the whole pipeline, from the questions to a release.

    RECIPE is the name of a file in config/recipes without .yaml; the default is quickstart. If the current folder is
    empty, it becomes a workspace first. Finished stages and paid responses of earlier runs are reused, so the same
    command also continues a run that was interrupted. The exit code is 3 if the promotion gate does not promote the
    trained Conductor.
    """
    workspace = find_workspace_or_defaults() if dry_run else open_or_create_workspace()
    _until_stopped(workspace, recipe, seed, "lifecycle", full, dry_run, yes)


@click.command(
    cls=Command,
    examples=(
        ("Train the policy of the quickstart, or continue its training.", "podium train quickstart"),
        ("Show what a training of the 3B recipe would call and cost.", "podium train paper-3b --dry-run"),
    ),
)
@add_recipe_argument
@seed_option
@click.option(
    "--run", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
    help="Run only the trainer, with the settings that an earlier command wrote into this folder of .podium/runs.",
)  # fmt: skip
@dry_run_option
@add_yes_option
def train(recipe: str, seed: int | None, folder: Path | None, dry_run: bool, yes: bool) -> None:
    """Choose the training questions and train the policy.

    The earlier stages of the data (questions, shortlist, responses) must be finished. The policy first learns the
    format of workflows from examples (the cold start), and then from rewards (GRPO). A training that was interrupted
    continues from its last checkpoint.
    """
    if folder is None:
        _until_stopped(Workspace.find(), recipe, seed, "train", False, dry_run, yes)
        return
    import os

    from ops.training.run.training_run import RunPlan, build_training_command, prepare_environment

    plan, folder = RunPlan.read(folder), folder.resolve()
    started = build_training_command(plan, folder)
    os.chdir(plan.root)
    os.execve(started[0], started, os.environ | prepare_environment(plan, folder))  # signals then reach the trainer


@click.command(
    cls=Command,
    examples=(
        ("Compare the Conductor of the quickstart with the other systems.", "podium evaluate quickstart"),
        ("Also show the scores of each benchmark.", "podium evaluate quickstart --full"),
    ),
)
@add_recipe_argument
@seed_option
@full_option
@dry_run_option
@add_yes_option
def evaluate(recipe: str, seed: int | None, full: bool, dry_run: bool, yes: bool) -> None:
    """Compare the trained Conductor with the other systems.

    The Conductor, each single worker and the baselines of the recipe answer the test questions. The command prints
    their accuracy and their cost. It registers and promotes nothing.
    """
    _until_stopped(Workspace.find(), recipe, seed, "evaluate", full, dry_run, yes)


@click.command(
    cls=Command,
    examples=(
        ("Start both web interfaces for the workspace of the current folder.", "podium dev"),
        ("Start them for another workspace.", "PODIUM_ROOT=trial podium dev"),
    ),
)
def dev() -> None:
    """Start the web interfaces of Dagster and MLflow.

    Dagster shows the pipeline and its runs, and MLflow shows the training curves and the registered versions. The
    command prints both addresses and runs until you press Ctrl-C. Their ports are 3000 and 5000, or free ones if these
    are in use.
    """
    from pipelines.dev import serve_interfaces

    sys.exit(serve_interfaces(Workspace.find()))


def _until_stopped(
    workspace: Workspace, recipe: str, seed: int | None, part: str, full: bool, dry_run: bool, yes: bool
) -> None:
    from pipelines.run import NEEDS_OF_JOB, run_job

    if dry_run:
        from ops.config import Setup
        from pipelines.commands.plan import show_plan

        show_plan(Setup.read(workspace, recipe, seed), NEEDS_OF_JOB[part])
        return
    try:
        kept_back = run_job(workspace, recipe, seed, part, full, yes)
    except KeyboardInterrupt:
        exit_interrupted()
    if kept_back:
        raise click.exceptions.Exit(EXIT_NOT_PROMOTED)
