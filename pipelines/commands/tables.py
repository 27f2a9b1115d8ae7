"""`podium seeds`: a measurement that ends as a table in docs/results.md."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace


@click.command()
@click.argument("seeds", type=int, nargs=-1)
def seeds(seeds: tuple[int, ...]) -> None:
    """Run the quickstart on several seeds, as a table.

    SEEDS are 1 2 3 4 5 when none is named. The table goes into docs/results.md.
    """
    from pipelines.seeds import write_table

    click.echo(f"written to {write_table(Workspace.find(), seeds or (1, 2, 3, 4, 5))}")
