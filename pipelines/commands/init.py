"""`podium init`, `backup` and `restore`: make a workspace from the files in the package; copy what it holds."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ops.core.atomic import made_whole, sweep, sweep_beside, write_text
from ops.core.backup import RESTORABLE
from ops.core.errors import DataError, PodiumError
from ops.core.installation import resources
from ops.core.workspace import Workspace
from pipelines.commands.options import POOL, accept_missing_option

LAID_OUT = (
    ".env.example",
    ".gitignore",
    "config/**/*.json",
    "config/**/*.yaml",
    "dagster.yaml",
    "data/.gitignore",
    "data/cold_start/*.yaml",
    "data/few_shots/*.yaml",
    "dvc.yaml",
)
"""Files that a user edits or a run reads in the workspace; fact tables and the serving agent stay in the package."""
_WITHOUT_GIT = "    no_scm = true\n"
_CHECKOUTS_ONLY = re.compile(r"^# In a checkout of Podium .+\n(?:[^#\n].*\n)+\n?", re.MULTILINE)
"""The block of .gitignore that hides the versions of the data: in a repository of a user's own they are tracked."""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--pool", type=POOL, help="Run a first look at this pool too: key, cost, table.")
@click.option("--yes", is_flag=True, help="Ask nothing: spend what --pool costs, and fail where a key is missing.")
@accept_missing_option
@click.option("--dry-run", is_flag=True, help="Show the plan of the first look at --pool; write nothing.")
@click.option("--without", multiple=True, metavar="WORKER", help="Agree to leave out a worker above max_output_price.")
def init(folder: Path, pool: str | None, yes: bool, dry_run: bool, without: tuple[str, ...]) -> None:
    """Lay out a workspace: configuration and tables.

    In FOLDER, the current one when none is named. Files that are there stay as they are. With --pool it also writes
    the recipe first-look-POOL and the pool's key into .env, shows the cost, asks, and runs the recipe.
    """
    if (yes or dry_run) and pool is None:
        raise click.UsageError(f"{'--yes' if yes else '--dry-run'} belongs to --pool: nothing else asks or spends")
    root = folder.resolve()
    if dry_run:
        from ops.config import Setup, with_pool
        from ops.planning.requirements import ALL_NEEDS
        from pipelines.commands.plan import show_plan
        from pipelines.first_look import BASE

        there = Workspace(root) if (root / "config").is_dir() else Workspace(resources())
        show_plan(Setup.read(there, with_pool(BASE, pool)), ALL_NEEDS)
        return
    if pool is None or root != resources():
        lay_out(root)
    if pool is not None:
        from pipelines.environment_file import read_environment_file
        from pipelines.first_look import first_look

        read_environment_file(Workspace(root))
        first_look(Workspace(root), pool, yes, without)


def workspace_here() -> Workspace:
    """Return the workspace of the current folder; an empty folder becomes a new workspace, with a note on stdout.

    Raises `PodiumError` in any other folder.
    """
    try:
        return Workspace.find()
    except PodiumError:
        here = Path.cwd()
        if any(not entry.name.startswith(".") for entry in here.iterdir()):
            raise
        lay_out(here)
        return Workspace.find()


def lay_out(root: Path) -> None:
    """Write every missing file; initialise DVC if it is installed."""
    if root == resources():
        raise PodiumError(f"{root} is a checkout and already has these files")
    sweep_beside(root / "config")
    for folder in (root / "config", root / "data"):
        sweep(folder)
    sources = sorted(file for pattern in LAID_OUT for file in resources().glob(pattern))
    new = [file for file in sources if not (root / file.relative_to(resources())).exists()]
    for file in new:
        text = file.read_text(encoding="utf-8")
        name = root / file.relative_to(resources())
        write_text(name, ignored_in_workspace(text) if file.name == ".gitignore" else text)
    kept = f", {len(sources) - len(new)} were there" if len(new) < len(sources) else ""
    click.echo(f"{root}: {len(new)} files laid out{kept}")
    click.echo(_start_dvc(Workspace(root)))


def ignored_in_workspace(ignored: str) -> str:
    """Return the text of .gitignore for a workspace, whose versions of the data git may track."""
    return _CHECKOUTS_ONLY.sub("", ignored)


def dvc_settings(with_git: bool) -> str:
    """Return DVC's configuration for a workspace; `with_git`: it is the root of a git repository of the user's own."""
    settings = (resources() / ".dvc" / "config").read_text(encoding="utf-8")
    return settings.replace(_WITHOUT_GIT, "") if with_git else settings


def _start_dvc(workspace: Workspace) -> str:
    from ops.versioning.dvc import program

    folder = workspace.root / ".dvc"
    if folder.is_dir():
        return "DVC records the data here."
    try:
        program(workspace)
    except PodiumError:
        return "DVC is not installed: no versions of the data are kept. Install it and run `podium init` again."
    write_text(workspace.root / ".dvcignore", (resources() / ".dvcignore").read_text(encoding="utf-8"))
    with_git = (workspace.root / ".git").exists()
    with made_whole(folder) as new:  # whole or absent, since a folder that is there is taken for complete
        write_text(new / ".gitignore", (resources() / ".dvc" / ".gitignore").read_text(encoding="utf-8"))
        write_text(new / "config", dvc_settings(with_git))
    return "DVC records the data here" + ("." if with_git else ", without git.")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path) -> None:
    """Copy what cannot be made again into a file.

    Ledger, cache, registry, snapshots and what you wrote (configuration, texts, files that it names) go into FILE,
    while they are in use. Keys (.env) are left out. What a team's servers hold is theirs to back up
    (docs/deployment.md).
    """
    from ops.core.backup import backup as copy

    if file.exists():
        raise DataError(file, "", "is there already", "Name another")
    for part, said in copy(Workspace.find(), file).items():
        click.echo(f"{part}: {said}")
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--only", multiple=True, type=click.Choice(RESTORABLE), help="Restore this part (repeatable).")
@click.option("--replace", is_flag=True, help="Take the backup's files where others are, which are kept elsewhere.")
def restore(file: Path, only: tuple[str, ...], replace: bool) -> None:
    """Restore a backup that `podium backup` wrote.

    Restores FILE into this workspace, which may be in another folder than the original; an empty folder becomes a
    workspace first. What was paid since the backup stays: ledger and cache are merged. A registry with contents and
    files that differ stay as they are without --replace.
    """
    from ops.core.backup import restore as put_back

    file = file.resolve()
    for part, said in put_back(workspace_here(), file, only, replace=replace).items():
        click.echo(f"{part}: {said}")
