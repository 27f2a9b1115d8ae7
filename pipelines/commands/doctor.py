"""`podium doctor`: what this machine lacks, with remedies."""

from __future__ import annotations

import click

from pipelines.commands.options import AS_JSON, workspace_or_defaults
from pipelines.commands.shown import print_json

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
