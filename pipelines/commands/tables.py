"""`podium baselines`: tables of the registered baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, SEED
from pipelines.commands.shown import print_json


@click.command()
@click.option("--score", "recipe", help="Also let the baselines that this recipe names answer, as a table.")
@click.option("--seed", type=SEED, help="Replaces the recipe's seed.")
@AS_JSON
def baselines(recipe: str | None, seed: int | None, as_json: bool) -> None:
    """List the baselines of the Conductor as a table.

    `--score` needs a training mix and its responses (`podium run`), and writes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.baselines import registry_facts, registry_table, write_scores

    if recipe is None and as_json:
        print_json(registry_facts())
    elif recipe is None:
        click.echo(registry_table(), nl=False)
    else:
        click.echo(f"written to {write_scores(Workspace.find(), recipe, seed)}")
