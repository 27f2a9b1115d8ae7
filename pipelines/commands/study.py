"""`podium study`: measure changes of a recipe, of workflows, of the pool or of the rounds."""

from __future__ import annotations

from pathlib import Path

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import AS_JSON, SEED, dry_run_option, yes_option
from pipelines.commands.shown import print_json


@click.command()
@click.argument("name", required=False)
@click.argument("changes", nargs=-1)
@click.option("--recipe", help="Whose policy is studied (quickstart); a study of config/studies.yaml names its own.")
@click.option("--seed", "seeds", type=SEED, multiple=True, help="In place of the study's own seeds; may be repeated.")
@click.option(
    "--into", type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the table into this page, between its two lines `<!-- made by `podium study NAME` -->`.",
)  # fmt: skip
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="Also write its picture, a PNG.")
@AS_JSON
@dry_run_option
@yes_option
def study(
    name: str | None,
    changes: tuple[str, ...],
    recipe: str | None,
    seeds: tuple[int, ...],
    into: Path | None,
    picture: Path | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Measure the effect of named changes, as a table.

    Without NAME the studies are listed (--json: for programs): files of ops/evaluation/studies, which train nothing and
    need a trained and scored policy (`podium run`), and those of config/studies.yaml, each of which runs its recipe's
    pipeline first. CHANGES selects changes of a study that trains a recipe again; the default is all of them. Finished
    work is reused.
    """
    workspace = Workspace.find()
    if name is None:
        from ops.evaluation.study import load_all_studies

        known = load_all_studies(workspace.config)
        if as_json:
            print_json([{"study": each, "title": entry.title} for each, entry in known.items()])
            return
        width = max(map(len, known), default=0)
        click.echo("\n".join(f"{each:<{width}}  {entry.title}" for each, entry in known.items()))
        return
    from pipelines.quiet import quiet

    quiet()
    from ops.core.documents import write_between
    from pipelines.studies import made

    text = made(workspace, name, changes, recipe, seeds, yes, dry_run, picture and workspace.root / picture)
    if dry_run:
        return
    click.echo(text, nl=False)
    if into is not None:
        write_between(workspace.root / into, f"<!-- made by `podium study {name}` -->", text)
        click.echo(f"written to {into}")
