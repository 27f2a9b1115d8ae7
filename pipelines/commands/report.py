"""`podium report`, `reproduce` and `baselines`: write measurements as a page, make all of them, list the baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, SEED, dry_run_option, recipe_argument, seed_option, yes_option
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
@dry_run_option
@yes_option
def reproduce(seed: int | None, dry_run: bool, yes: bool) -> None:
    """Measure the synthetic environment against every baseline.

    Runs the recipe reproduction, its experiments and its report; the tables are written beside the report, in
    .podium/reports. Finished work is reused.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.reproduction import RECIPE, reproduced

    if dry_run:
        from ops.config import Setup
        from ops.planning.requirements import ALL_NEEDS
        from pipelines.commands.plan import show_plan

        show_plan(Setup.read(Workspace.find(), RECIPE, seed), ALL_NEEDS)
        return
    try:
        page, table = reproduced(Workspace.find(), seed, yes)
    except KeyboardInterrupt:
        stopped_midway()
    click.echo(f"written to {page} and {table}")


@click.command()
@click.option("--score", "recipe", help="Also let the baselines that this recipe names answer, as a table.")
@click.option("--seed", type=SEED, help="Replaces the recipe's seed.")
@AS_JSON
@dry_run_option
@yes_option
def baselines(recipe: str | None, seed: int | None, as_json: bool, dry_run: bool, yes: bool) -> None:
    """List the baselines of the Conductor as a table.

    `--score` needs a training mix and its responses (`podium run`), and writes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.baselines import registry_facts, registry_table, show_cost, write_scores

    if recipe is None and as_json:
        print_json(registry_facts())
    elif recipe is None:
        click.echo(registry_table(), nl=False)
    elif dry_run:
        show_cost(Workspace.find(), recipe, seed)
    else:
        click.echo(f"written to {write_scores(Workspace.find(), recipe, seed, yes)}")
