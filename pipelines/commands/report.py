"""`podium report`, `reproduce` and `baselines`: write measurements as a page, make all of them, list the baselines."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import (
    AS_JSON,
    add_optional_recipe_argument,
    add_yes_option,
    dry_run_option,
    seed_option,
    wide_option,
)
from pipelines.commands.output import print_json, print_markdown, print_text
from pipelines.termination import exit_interrupted


@click.command(
    cls=Command,
    examples=(
        ("Write the report of the champion.", "podium report"),
        ("Write the report of the quickstart with seed 2.", "podium report quickstart --seed 2"),
    ),
)
@add_optional_recipe_argument
@seed_option
def report(recipe: str | None, seed: int | None) -> None:
    """Write all results of a Conductor into one HTML page.

    The report describes the champion, or the Conductor that RECIPE has trained if you name a recipe. If the pool has
    changed since that training, it describes the champion of the recipe. The command calls no worker. If a part of the
    report has not been measured yet, the report names the command that measures it. The page is written into
    .podium/reports and attached to the versions of this Conductor in MLflow.
    """
    from pipelines.startup import silence_tools

    silence_tools()
    from pipelines.reproduction import write_report

    print_text(f"written to {write_report(Workspace.find(), recipe, seed)}")


@click.command(
    cls=Command,
    examples=(
        ("Measure the synthetic environment with the recipe's own seed, which takes hours.", "podium reproduce"),
        ("Show what this would call, without doing it.", "podium reproduce --dry-run"),
    ),
)
@seed_option
@dry_run_option
@add_yes_option
def reproduce(seed: int | None, dry_run: bool, yes: bool) -> None:
    """Compare a Conductor with all baselines, and report it.

    The command runs the recipe reproduction in the synthetic environment, the studies that belong to it, and its
    report. It writes the tables next to the report, into .podium/reports. Finished work is reused.
    """
    from pipelines.startup import silence_tools

    silence_tools()
    from pipelines.reproduction import RECIPE, reproduce

    if dry_run:
        from ops.config import Setup
        from ops.planning.requirements import ALL_PARTS
        from pipelines.commands.plan import show_plan

        show_plan(Setup.read(Workspace.find(), RECIPE, seed), ALL_PARTS)
        return
    try:
        page, table = reproduce(Workspace.find(), seed, yes)
    except KeyboardInterrupt:
        exit_interrupted()
    print_text(f"written to {page} and {table}")


@click.command(
    cls=Command,
    examples=(
        ("List the baselines.", "podium baselines"),
        ("Print the list as JSON.", "podium baselines --json"),
    ),
)
@AS_JSON
@wide_option
def baselines(as_json: bool, wide: bool) -> None:
    """List the systems that a Conductor is compared with.

    The table shows for each baseline what it does, how many calls a question takes, and the paper that it comes from.
    """
    from pipelines.startup import silence_tools

    silence_tools()
    from pipelines.baselines import list_baseline_facts, make_baseline_table

    if as_json:
        print_json(list_baseline_facts())
    else:
        print_markdown(make_baseline_table(), wide)
