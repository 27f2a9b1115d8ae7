"""`podium plan`, `forecast` and `doctor`: what a recipe would need and cost, and what this machine lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, recipe_argument, workspace_or_defaults
from pipelines.commands.shown import print_json

if TYPE_CHECKING:
    from ops.config import Setup
    from ops.planning.requirements import Need


@click.command()
@recipe_argument
@click.option("--gpus", metavar="NxGB", help="Plan for other GPUs than this machine's: 2x80, 1x141; 0: none.")
@AS_JSON
def plan(recipe: str, gpus: str | None, as_json: bool) -> None:
    """Show what a recipe needs, costs and lacks.

    Memory per GPU by part, disk, calls, USD and hours by stage, and everything that is missing before it can start. The
    exit status is 1 if something is missing.
    """
    from ops.config import Setup
    from ops.planning.requirements import ALL_NEEDS

    show_plan(Setup.read(workspace_or_defaults(), recipe), ALL_NEEDS, gpus, as_json)


def show_plan(setup: Setup, needs: Sequence[Need], gpus: str | None = None, as_json: bool = False) -> None:
    """Print the plan of a recipe, and end with exit code 1 if one of these parts of a pipeline run lacks something."""
    from ops.benchmarks.graded import configure_grading
    from ops.planning.machine import this_machine
    from ops.planning.plan_text import as_facts, report
    from ops.planning.recipe_plan import make_plan
    from ops.planning.requirements import missing
    from pipelines.commands.shown import wrapped

    configure_grading(setup.recipe, setup.workspace.root)
    made = make_plan(setup, this_machine(setup.workspace, gpus))
    lacking = missing(made, needs)
    if as_json:
        print_json(as_facts(made, lacking))
    else:
        click.echo(wrapped(report(made, lacking)))
    if any(each.refuses for each in lacking):
        raise click.exceptions.Exit(1)


@click.command()
@recipe_argument
@AS_JSON
def forecast(recipe: str, as_json: bool) -> None:
    """Forecast a training run from the precached responses.

    First the number of questions that it rests on; then signal, calls, USD and time, beside the last run of the same
    settings, and whether training would pay.
    """
    from ops.config import Setup
    from ops.planning.forecast import as_facts, basis, comparison, make_forecast, verdict, warnings
    from pipelines.commands.shown import console, table, wrapped

    made, last = make_forecast(Setup.read(Workspace.find(), recipe))
    if as_json:
        print_json({**as_facts(made), "last_run": last, "warnings": warnings(made), "verdict": verdict(made)})
        return
    click.echo(wrapped(basis(made)))
    console().print(table(("a training run", "forecast", "last run"), comparison(made, last)))
    for line in (*warnings(made), verdict(made)):
        click.echo(wrapped(line))


MARKS = {"ok": "ok      ", "optional": "optional", "missing": "MISSING "}


@click.command()
@AS_JSON
def doctor(as_json: bool) -> None:
    """Look for Python, git, disk, sandbox, keys, GPUs, engines.

    Makes no call. Exit status 1 if something is missing that every recipe needs.
    """
    from ops.planning.doctor import diagnose

    found = diagnose(workspace_or_defaults())
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        width = max(len(each.what) for each in found)
        for each in found:
            remedy = f". {each.remedy}" if each.remedy else ""
            click.echo(f"{MARKS[each.state]}  {each.what:<{width}}  {each.said}{remedy}")
    if any(each.state == "missing" for each in found):
        raise click.exceptions.Exit(1)
