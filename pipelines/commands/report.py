"""`podium report`, `reproduce` and `baselines`: write measurements as a page, make all of them, list the baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, SEED, recipe_argument, seed_option, yes_option
from pipelines.commands.shown import print_json
from pipelines.ending import stopped_midway


@click.command()
@recipe_argument
@seed_option
def report(recipe: str, seed: int | None) -> None:
    """Write what was measured as one HTML page.

    The report is about the Conductor that RECIPE trained. No worker is called; each missing part is listed with the
    command that makes it. The page is written to .podium/reports and to the Conductor's versions in MLflow.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.reproduction import write_report

    click.echo(f"written to {write_report(Workspace.find(), recipe, seed)}")


@click.command()
@seed_option
def reproduce(seed: int | None) -> None:
    """Measure the synthetic environment against every baseline.

    Runs the recipe reproduction, its experiments and its report; the tables are written beside the report, in
    .podium/reports. Finished work is reused.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.reproduction import reproduced

    try:
        page, table = reproduced(Workspace.find(), seed)
    except KeyboardInterrupt:
        stopped_midway()
    click.echo(f"written to {page} and {table}")


@click.command()
@click.option("--score", "recipe", help="Also let the baselines that this recipe names answer, as a table.")
@click.option("--seed", type=SEED, help="Replaces the recipe's seed.")
@AS_JSON
@yes_option
def baselines(recipe: str | None, seed: int | None, as_json: bool, yes: bool) -> None:
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
        click.echo(f"written to {write_scores(Workspace.find(), recipe, seed, yes)}")
