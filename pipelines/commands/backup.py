"""`podium backup` and `podium restore`: ledger, cache and registry in one file."""

from __future__ import annotations

from pathlib import Path

import click

from ops.core.errors import DataError
from ops.core.workspace import Workspace


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path) -> None:
    """Copy what cannot be made again into a file.

    Ledger, cache, registry and snapshots go into FILE, while they are in use. What a team's servers hold is theirs to
    back up (docs/deployment.md).
    """
    from ops.core.backup import backup as copy

    if file.exists():
        raise DataError(file, "", "is there already", "Name another")
    for part, said in copy(Workspace.find(), file).items():
        click.echo(f"{part}: {said}")
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def restore(file: Path) -> None:
    """Restore a backup that `podium backup` wrote.

    Restores FILE into this checkout, which may differ from the original. Existing files are never replaced.
    """
    from ops.core.backup import restore as put_back

    click.echo(f"restored: {', '.join(put_back(Workspace.find(), file))}")
