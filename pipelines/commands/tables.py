"""`podium baselines`: tables of the registered baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import SEED


@click.command()
@click.option("--score", "recipe", help="Also let the baselines that this recipe names answer, as a table.")
@click.option("--seed", type=SEED, help="Replaces the recipe's seed.")
def baselines(recipe: str | None, seed: int | None) -> None:
    """List the baselines of the Conductor as a table.

    `--score` needs a training mix and its responses (`podium run`), and writes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.baselines import registry_table, write_scores

    if recipe is None:
        click.echo(registry_table(), nl=False)
    else:
        click.echo(f"written to {write_scores(Workspace.find(), recipe, seed)}")
