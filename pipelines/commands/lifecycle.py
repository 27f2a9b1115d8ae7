"""`podium run`, `train`, `evaluate`, `dev`: the pipeline's stages in this process, and its two web interfaces."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ops.core.workspace import Workspace
from pipelines.commands.init import workspace_here
from pipelines.commands.options import (
    KEPT_BACK,
    dry_run_option,
    recipe_argument,
    seed_option,
    workspace_or_defaults,
    yes_option,
)
from pipelines.ending import stopped_midway

full_option = click.option("--full", is_flag=True, help="Show the scores of each benchmark and the strategies, too.")


@click.command()
@recipe_argument
@seed_option
@full_option
@dry_run_option
@yes_option
def run(recipe: str, seed: int | None, full: bool, dry_run: bool, yes: bool) -> None:
    """Run the whole pipeline once.

    From problems to a promoted model, with config/recipes/RECIPE.yaml (default: quickstart). An empty folder
    becomes a workspace first. Finished work and paid responses are reused. Exit code 3 if the gate does not promote
    the result.
    """
    workspace = workspace_or_defaults() if dry_run else workspace_here()
    _until_stopped(workspace, recipe, seed, "lifecycle", full, dry_run, yes)


@click.command()
@recipe_argument
@seed_option
@click.option("--run", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Train as the plan in this folder of .podium/runs says, and nothing else.")  # fmt: skip
@dry_run_option
@yes_option
def train(recipe: str, seed: int | None, folder: Path | None, dry_run: bool, yes: bool) -> None:
    """Choose the mix, cold-start a policy, train it.

    The stages before (problems, shortlist, responses) must be there. A training that was cut short goes on.
    """
    if folder is None:
        _until_stopped(Workspace.find(), recipe, seed, "train", False, dry_run, yes)
        return
    import os

    from ops.training.run.training_run import RunPlan, command, environment

    plan, folder = RunPlan.read(folder), folder.resolve()
    started = command(plan, folder)
    os.chdir(plan.root)
    os.execve(started[0], started, os.environ | environment(plan, folder))  # signals then reach the trainer


@click.command()
@recipe_argument
@seed_option
@full_option
@dry_run_option
@yes_option
def evaluate(recipe: str, seed: int | None, full: bool, dry_run: bool, yes: bool) -> None:
    """Score the trained Conductor and its opponents.

    Nothing is registered or promoted.
    """
    _until_stopped(Workspace.find(), recipe, seed, "evaluate", full, dry_run, yes)


@click.command()
def dev() -> None:
    """Serve the Dagster UI and MLflow, until Ctrl-C."""
    from pipelines.dev import serve

    sys.exit(serve(Workspace.find()))


def _until_stopped(
    workspace: Workspace, recipe: str, seed: int | None, part: str, full: bool, dry_run: bool, yes: bool
) -> None:
    from pipelines.run import NEEDS, live

    if dry_run:
        from ops.config import Setup
        from pipelines.commands.plan import show_plan

        show_plan(Setup.read(workspace, recipe, seed), NEEDS[part])
        return
    try:
        kept_back = live(workspace, recipe, seed, part, full, yes)
    except KeyboardInterrupt:
        stopped_midway()
    if kept_back:
        raise click.exceptions.Exit(KEPT_BACK)
