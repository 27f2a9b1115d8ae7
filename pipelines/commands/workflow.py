"""`podium workflow`: render a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, cast

import click

from ops.core.errors import DataError
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import POOL, find_workspace_or_defaults

if TYPE_CHECKING:
    from ops.workflow.rendering import Format

FORMATS = ("text", "markdown", "svg")


@click.group(
    cls=OrderedGroup,
    examples=(
        ("Show the workflow in a file as a tree of text.", "podium workflow render completion.txt"),
        ("Draw it as a picture.", "podium workflow render completion.txt --as svg > workflow.svg"),
    ),
)
def workflow() -> None:
    """Draw a workflow that a Conductor has written."""


@workflow.command(
    examples=(
        ("Draw the workflow in a file as a picture.", "podium workflow render completion.txt --as svg > workflow.svg"),
        ("Show it as text, with the names of another pool's workers.",
         "podium workflow render completion.txt --pool openai"),
    ),
)  # fmt: skip
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Write the workflow in this format.",
)
@click.option(
    "--pool", type=POOL, default="quickstart", show_default=True,
    help="Show the names of this pool's workers for the numbers in model_id.",
)  # fmt: skip
def render(file: TextIO, form: str, pool: str) -> None:
    """Draw the workflow in a text that a Conductor has written.

    FILE contains the text with the lists model_id, subtasks and access_list. Without FILE the command reads its
    standard input. If the text contains no valid workflow, the command ends with an error that says why.
    """
    from ops.config import load_pool
    from ops.workflow.grammar import parse_workflow
    from ops.workflow.rendering import render_workflow

    names = load_pool(find_workspace_or_defaults().config, pool).names
    parsed = parse_workflow(file.read(), offered=len(names), access="fine_grained")
    if parsed.workflow is None:
        remedy = "Write model_id, subtasks and access_list as docs/method.md says"
        raise DataError(file.name, str(parsed.failure), parsed.detail, remedy)
    click.echo(render_workflow(parsed.workflow, cast("Format", form), names))
