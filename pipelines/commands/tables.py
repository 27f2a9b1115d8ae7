"""`podium seeds`, `podium ablations`: measurements that end as tables in docs/results.md."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace


@click.command()
@click.argument("seeds", type=int, nargs=-1)
def seeds(seeds: tuple[int, ...]) -> None:
    """Run the quickstart on several seeds, as a table.

    SEEDS are 1 2 3 4 5 when none is named. The table goes into docs/results.md.
    """
    from pipelines.home import quiet

    quiet()
    from pipelines.seeds import write_table

    click.echo(f"written to {write_table(Workspace.find(), seeds or (1, 2, 3, 4, 5))}")


@click.command()
@click.argument("changes", nargs=-1)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1,), show_default=True, help="May be repeated.")
def ablations(changes: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """Train with one thing changed at a time, as a table.

    CHANGES are names in config/ablations.yaml, all of them when none is named. The table goes into docs/results.md.
    """
    from pipelines.home import quiet

    quiet()
    from pipelines.ablations import write_table

    click.echo(f"written to {write_table(Workspace.find(), changes, seeds)}")
