"""`podium study`: measure changes of a recipe, of workflows, of the pool or of the rounds."""

from __future__ import annotations

from pathlib import Path

import click

from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON, SEED, add_yes_option, dry_run_option, wide_option
from pipelines.commands.output import print_json, print_markdown, print_table, print_text


@click.command(
    cls=Command,
    examples=(
        ("Measure what the trained policy of the quickstart achieves with one worker for all steps.",
         "podium study one_worker --recipe quickstart"),
        ("Train the quickstart again with one change, on two seeds.",
         "podium study ablations 'half the cold start' --seed 1 --seed 2"),
    ),
)  # fmt: skip
@click.argument("name", required=False)
@click.argument("changes", nargs=-1)
@click.option("--recipe", metavar="RECIPE",
              help="Study the policy of this recipe instead of that of the quickstart. "
              "A study of config/studies.yaml names its recipe itself.")  # fmt: skip
@click.option(
    "--seed", "seeds", type=SEED, metavar="N", multiple=True,
    help="Use this seed instead of the study's own seeds. You can give this option several times.",
)  # fmt: skip
@click.option(
    "--into", type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the table into this page, between its two lines <!-- made by `podium study NAME` -->.",
)  # fmt: skip
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the table into this PNG file."
)
@AS_JSON
@wide_option
@dry_run_option
@add_yes_option
def study(
    name: str | None,
    changes: tuple[str, ...],
    recipe: str | None,
    seeds: tuple[int, ...],
    into: Path | None,
    picture: Path | None,
    as_json: bool,
    wide: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Measure how named changes affect accuracy and cost.

    Without NAME the command lists the studies. There are two kinds. A study of ops/evaluation/studies changes the
    workflows of a policy that `podium run` has trained and evaluated, and trains nothing. A study of
    config/studies.yaml first runs the pipeline of its recipe, and most of them then train the recipe again with each
    of their changes. With CHANGES you select some of these changes. Finished work is reused.
    """
    workspace = Workspace.find()
    if name is None:
        from ops.evaluation.study import load_all_studies

        known = load_all_studies(workspace.config)
        if as_json:
            print_json([{"study": each, "title": entry.title} for each, entry in known.items()])
            return
        print_table(("", ""), [(each, entry.title) for each, entry in known.items()])
        return
    from pipelines.startup import silence_tools

    silence_tools()
    from ops.core.documents import replace_marked_text
    from pipelines.studies import run_study

    text = run_study(workspace, name, changes, recipe, seeds, yes, dry_run, picture and workspace.root / picture)
    if dry_run:
        return
    print_markdown(text, wide)
    if into is not None:
        page = workspace.root / into
        written = replace_marked_text(page, f"<!-- made by `podium study {name}` -->", text)
        print_text(f"written to {into if written == page else into.with_suffix('')}")
