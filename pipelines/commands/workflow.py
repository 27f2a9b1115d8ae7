"""`podium workflow`: render a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, cast

import click

from ops.core.errors import DataError
from pipelines.commands.lazy import OrderedGroup
from pipelines.commands.options import POOL, workspace_or_defaults

if TYPE_CHECKING:
    from ops.workflow.rendering import Format

FORMATS = ("text", "markdown", "svg")


@click.group(cls=OrderedGroup)
def workflow() -> None:
    """Parse a workflow and draw it."""


@workflow.command()
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.option("--as", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--pool", type=POOL, default="quickstart", show_default=True, help="Whose workers the ordinals are.")
def render(file: TextIO, form: str, pool: str) -> None:
    """Render the workflow in a Conductor's completion.

    FILE is standard input when none is named. A completion without a valid workflow is an error with its reason.
    """
    from ops.config import load_pool
    from ops.workflow.grammar import parse
    from ops.workflow.rendering import render

    names = load_pool(workspace_or_defaults().config, pool).names
    parsed = parse(file.read(), offered=len(names), access="fine_grained")
    if parsed.workflow is None:
        remedy = "Write model_id, subtasks and access_list as docs/method.md says"
        raise DataError(file.name, str(parsed.failure), parsed.detail, remedy)
    click.echo(render(parsed.workflow, cast("Format", form), names))
