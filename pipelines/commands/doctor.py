"""`podium doctor`: what this machine lacks, with remedies."""

from __future__ import annotations

import json

import click

from pipelines.commands.options import AS_JSON, workspace_or_defaults

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
        click.echo(json.dumps([each._asdict() for each in found], ensure_ascii=False))
    else:
        width = max(len(each.what) for each in found)
        for each in found:
            remedy = f". {each.remedy}" if each.remedy else ""
            click.echo(f"{MARKS[each.state]}  {each.what:<{width}}  {each.said}{remedy}")
    if any(each.state == "missing" for each in found):
        raise click.exceptions.Exit(1)
