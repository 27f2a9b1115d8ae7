"""`podium plan` and `podium forecast`: what a recipe would need and cost."""

from __future__ import annotations

import sys

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import recipe_argument, workspace_or_defaults


@click.command()
@recipe_argument
@click.option("--gpus", metavar="NxGB", help="Plan for other GPUs than this machine's: 2x80, 1x141; 0: none.")
def plan(recipe: str, gpus: str | None) -> None:
    """Show what a recipe needs, costs and lacks.

    Memory per GPU by part, disk, calls, USD and hours by stage, and everything that is missing before it can start. The
    exit status is 1 if something is missing.
    """
    from ops.config import Setup
    from ops.grading import configure
    from ops.planning.machine import this_machine
    from ops.planning.plan import make_plan
    from ops.planning.requirements import missing
    from ops.planning.text import report
    from pipelines.commands.shown import wrapped

    setup = Setup.read(workspace_or_defaults(), recipe)
    configure(setup.recipe.grading, setup.workspace.root)
    made = make_plan(setup, this_machine(setup.workspace, gpus))
    click.echo(wrapped(report(made)))
    if any(each.refuses for each in missing(made)):
        sys.exit(1)


@click.command()
@recipe_argument
def forecast(recipe: str) -> None:
    """Forecast a training run from the precached responses.

    Signal, calls, USD and time, beside the last run of the same settings, and whether training would pay.
    """
    from ops.config import Setup
    from ops.planning.forecast import comparison, make_forecast, verdict, warnings
    from pipelines.commands.shown import console, table, wrapped

    made, last = make_forecast(Setup.read(Workspace.find(), recipe))
    console().print(table(("a training run", "forecast", "last run"), comparison(made, last)))
    for line in (*warnings(made), verdict(made)):
        click.echo(wrapped(line))
