"""`podium report`, `reproduce` and `baselines`: write measurements as a page, make all of them, list the baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, dry_run_option, recipe_argument, seed_option, yes_option
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
@AS_JSON
def baselines(as_json: bool) -> None:
    """List the baselines of the Conductor as a table."""
    from pipelines.quiet import quiet

    quiet()
    from pipelines.baselines import registry_facts, registry_table

    if as_json:
        print_json(registry_facts())
    else:
        click.echo(registry_table(), nl=False)
