"""`podium plan`, `forecast` and `doctor`: what a recipe would need and cost, and what this machine lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON, add_recipe_argument, find_workspace_or_defaults, wide_option
from pipelines.commands.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from ops.config import Setup
    from ops.planning.requirements import RunPart


@click.command(
    cls=Command,
    examples=(
        ("Show what the quickstart needs on this machine.", "podium plan quickstart"),
        ("Show whether the paper's recipe fits on two GPUs of 80 GB.", "podium plan paper --gpus 2x80"),
    ),
)
@add_recipe_argument
@click.option(
    "--gpus", metavar="NxGB",
    help="Plan for these GPUs instead of this machine's, for example 2x80 for two GPUs of 80 GB, or 0 for none.",
)  # fmt: skip
@AS_JSON
@wide_option
def plan(recipe: str, gpus: str | None, as_json: bool, wide: bool) -> None:
    """Show what a recipe needs, what it costs and what is missing.

    The plan lists the memory of each GPU, the disk space, and the calls, US dollars and hours of each stage. It also
    lists everything that is missing before the recipe can start, such as an API key, and then the exit code is 1. The
    command calls no model.
    """
    from ops.config import Setup
    from ops.planning.requirements import ALL_PARTS

    show_plan(Setup.read(find_workspace_or_defaults(), recipe), ALL_PARTS, gpus, as_json, wide)


def show_plan(
    setup: Setup, needs: Sequence[RunPart], gpus: str | None = None, as_json: bool = False, wide: bool = False
) -> None:
    """Print the plan of a recipe, and end with exit code 1 if one of these parts of a pipeline run lacks something."""
    from ops.benchmarks.graded import configure_grading
    from ops.planning.machine import detect_machine
    from ops.planning.plan_text import format_plan, list_figures
    from ops.planning.recipe_plan import make_plan
    from ops.planning.requirements import find_missing

    configure_grading(setup.recipe, setup.workspace.root)
    made = make_plan(setup, detect_machine(setup.workspace, gpus))
    lacking = find_missing(made, needs)
    if as_json:
        print_json(list_figures(made, lacking))
    else:
        print_text(format_plan(made, lacking, None if wide or not sys.stdout.isatty() else get_terminal_size().columns))
    if any(each.refuses for each in lacking):
        raise click.exceptions.Exit(1)


@click.command(
    cls=Command,
    examples=(
        ("Forecast a training with the models of OpenAI, after `podium run pilot --pool openai`.",
         "podium forecast pilot --pool openai"),
        ("Print the forecast of the quickstart as JSON.", "podium forecast quickstart --json"),
    ),
)  # fmt: skip
@add_recipe_argument
@AS_JSON
def forecast(recipe: str, as_json: bool) -> None:
    """Estimate from stored responses whether training would pay.

    The command first says on how many questions the forecast is based. Then it shows the share of questions from which
    GRPO could learn, and the calls, US dollars and time of a training, beside those of the last run of the recipe. If
    that run had other settings or another pool, the command says so. It ends with a verdict. It calls no model.
    """
    from ops.config import Setup
    from ops.planning.forecast import (
        compare_with_run,
        describe_basis,
        describe_last_run,
        describe_outlook,
        list_figures,
        list_warnings,
        make_forecast,
    )

    made, last = make_forecast(Setup.read(Workspace.find(), recipe))
    if as_json:
        print_json(
            {**list_figures(made), "last_run": last, "warnings": list_warnings(made), "verdict": describe_outlook(made)}
        )
        return
    print_text(describe_basis(made))
    print_table(*compare_with_run(made, last), optional=())
    for line in (describe_last_run(last), *list_warnings(made), describe_outlook(made)):
        print_text(line)


MARKS = {"ok": "ok", "optional": "optional", "missing": "MISSING"}


@click.command(
    cls=Command,
    examples=(
        ("Check this machine.", "podium doctor"),
        ("Print the result for a script.", "podium doctor --json"),
    ),
)
@AS_JSON
def doctor(as_json: bool) -> None:
    """Check what this machine provides and what is missing.

    The command looks at Python, git, the free disk space, the sandbox for programs, the API keys, the GPUs and the
    libraries for training. It calls no model. The exit code is 1 if something is missing that every recipe needs.
    """
    from ops.planning.doctor import diagnose_machine

    found = diagnose_machine(find_workspace_or_defaults())
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        rows = []
        for each in found:
            remedy = f". {each.remedy}" if each.remedy else ""
            rows.append((MARKS[each.state], each.what, f"{each.said}{remedy}"))
        print_table(("", "", ""), rows, optional=())
    if any(each.state == "missing" for each in found):
        raise click.exceptions.Exit(1)
