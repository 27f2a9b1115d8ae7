"""`podium plan` and `podium forecast`: what a recipe would do, before it does."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import recipe_argument, workspace_or_defaults


@click.command()
@recipe_argument
def plan(recipe: str) -> None:
    """Validate a recipe and say what it would do.

    With its pool, the number of its calls, and the API keys that are missing.
    """
    from ops.config import Setup
    from ops.training.plan import describe

    click.echo(describe(Setup.read(workspace_or_defaults(), recipe)))


@click.command()
@recipe_argument
def forecast(recipe: str) -> None:
    """Foretell a training run from what was precached.

    Signal, calls, USD and time, beside the last run like it.
    """
    from ops.config import Setup
    from ops.curation.card import markdown_table
    from ops.training.forecast import comparison, foretell, warnings

    made, last = foretell(Setup.read(Workspace.find(), recipe))
    click.echo(markdown_table(("a training run", "forecast", "last run"), comparison(made, last)))
    for warning in warnings(made):
        click.echo(warning)
