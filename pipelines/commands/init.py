"""`podium init`, `create_backup` and `restore_backup`: make a workspace from the files in the package; copy what it
holds."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ops.core.atomic import create_folder_atomically, remove_leftovers, remove_leftovers_beside, write_text
from ops.core.backup import RESTORABLE
from ops.core.errors import DataError, PodiumError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import POOL, accept_missing_option
from pipelines.commands.output import print_text

WORKSPACE_FILES = (
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
_CHECKOUT_BLOCK = re.compile(r"^# In a checkout of Podium .+\n(?:[^#\n].*\n)+\n?", re.MULTILINE)
"""The block of .gitignore that hides the versions of the data: in a repository of a user's own they are tracked."""


@click.command(
    cls=Command,
    examples=(
        ("Create a workspace in the folder trial.", "podium init trial"),
        ("Also try the models of OpenAI's pool. The command shows the cost and asks before it spends anything.",
         "podium init trial --pool openai"),
    ),
)  # fmt: skip
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--pool", type=POOL, help="Also try the models of this pool: run the recipe first-look with it.")
@click.option(
    "--yes", is_flag=True, help="Run --pool without asking for confirmation, and end with an error if a key is missing."
)
@accept_missing_option
@click.option("--dry-run", is_flag=True, help="Show what --pool would call and cost, without doing it.")
@click.option(
    "--without", multiple=True, metavar="WORKER",
    help="Agree to leave out this worker of --pool, whose price is above the recipe's max_output_price. "
    "You can give this option several times.",
)  # fmt: skip
def init(folder: Path, pool: str | None, yes: bool, dry_run: bool, without: tuple[str, ...]) -> None:
    """Create a workspace in a folder, and try a pool of models.

    A workspace is a folder with the configuration and the data of your runs. The command writes the files of the
    configuration into FOLDER, which is the current folder unless you name another. Files that exist are left unchanged.

    With --pool the command also tries the models of a pool on a few real questions. It writes a recipe named
    first-look-POOL, asks for the API key and writes it into .env, shows the cost, asks for confirmation and runs the
    recipe.
    """
    if (yes or dry_run) and pool is None:
        raise click.UsageError(f"{'--yes' if yes else '--dry-run'} belongs to --pool: nothing else asks or spends")
    root = folder.resolve()
    if dry_run:
        from ops.config import Setup, with_pool
        from ops.planning.requirements import ALL_PARTS
        from pipelines.commands.plan import show_plan
        from pipelines.first_look import BASE_RECIPE

        there = Workspace(root) if (root / "config").is_dir() else Workspace(resources_folder())
        show_plan(Setup.read(there, with_pool(BASE_RECIPE, pool)), ALL_PARTS)
        return
    if pool is None or root != resources_folder():
        write_workspace_files(root)
    if pool is not None:
        from pipelines.environment_file import read_environment_file
        from pipelines.first_look import run_first_look

        read_environment_file(Workspace(root))
        run_first_look(Workspace(root), pool, yes, without)


def open_or_create_workspace() -> Workspace:
    """Return the workspace of the current folder; an empty folder becomes a new workspace, with a note on stdout.

    Raises `PodiumError` in any other folder.
    """
    try:
        return Workspace.find()
    except PodiumError:
        here = Path.cwd()
        if any(not entry.name.startswith(".") for entry in here.iterdir()):
            raise
        write_workspace_files(here)
        return Workspace.find()


def write_workspace_files(root: Path) -> None:
    """Write every missing file; initialise DVC if it is installed."""
    if root == resources_folder():
        raise PodiumError(f"{root} is a checkout and already has these files")
    remove_leftovers_beside(root / "config")
    for folder in (root / "config", root / "data"):
        remove_leftovers(folder)
    sources = sorted(file for pattern in WORKSPACE_FILES for file in resources_folder().glob(pattern))
    new = [file for file in sources if not (root / file.relative_to(resources_folder())).exists()]
    for file in new:
        text = file.read_text(encoding="utf-8")
        name = root / file.relative_to(resources_folder())
        write_text(name, adapt_gitignore(text) if file.name == ".gitignore" else text)
    kept = f", {len(sources) - len(new)} existed already" if len(new) < len(sources) else ""
    print_text(f"{root}: {len(new)} files written{kept}")
    print_text(_initialize_dvc(Workspace(root)))


def adapt_gitignore(ignored: str) -> str:
    """Return the text of .gitignore for a workspace, whose versions of the data git may track."""
    return _CHECKOUT_BLOCK.sub("", ignored)


def make_dvc_settings(with_git: bool) -> str:
    """Return DVC's configuration for a workspace; `with_git`: it is the root of a git repository of the user's own."""
    settings = (resources_folder() / ".dvc" / "config").read_text(encoding="utf-8")
    return settings.replace(_WITHOUT_GIT, "") if with_git else settings


def _initialize_dvc(workspace: Workspace) -> str:
    from ops.versioning.dvc import find_program

    folder = workspace.root / ".dvc"
    if folder.is_dir():
        return "DVC records the data here."
    try:
        find_program(workspace)
    except PodiumError:
        return "DVC is not installed: no versions of the data are kept. Install it and run `podium init` again."
    write_text(workspace.root / ".dvcignore", (resources_folder() / ".dvcignore").read_text(encoding="utf-8"))
    with_git = (workspace.root / ".git").exists()
    with create_folder_atomically(folder) as new:  # whole or absent, since a folder that is there is taken for complete
        write_text(new / ".gitignore", (resources_folder() / ".dvc" / ".gitignore").read_text(encoding="utf-8"))
        write_text(new / "config", make_dvc_settings(with_git))
    return "DVC records the data here" + ("." if with_git else ", without git.")


@click.command(
    cls=Command,
    examples=(
        ("Back up the workspace of the current folder.", "podium backup ../podium.tar"),
        ("Restore this backup in another folder.", "podium restore ../podium.tar"),
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path) -> None:
    """Copy everything that cannot be computed again into one file.

    FILE will contain the ledger, the store of responses, the registry of models, the settings of past runs, and the
    files that you wrote. The command may run while other commands use the workspace. API keys (.env) are left out. If a
    team keeps its data on servers, their own tools must back these up (docs/deployment.md).
    """
    from ops.core.backup import create_backup as copy

    if file.exists():
        raise DataError(file, "", "exists already", "Name another file")
    for part, said in copy(Workspace.find(), file).items():
        print_text(f"{part}: {said}")
    print_text(f"{file}: {file.stat().st_size:,} bytes")


@click.command(
    cls=Command,
    examples=(
        ("Restore a backup in the current folder.", "podium restore ../podium.tar"),
        (
            "Restore only the ledger and the stored responses.",
            "podium restore ../podium.tar --only ledger --only cache",
        ),
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(RESTORABLE),
    help="Restore only this part. You can give this option several times.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace files that differ by those of the backup. The replaced files are kept under another name.",
)
def restore(file: Path, only: tuple[str, ...], replace: bool) -> None:
    """Restore a backup that `podium backup` wrote.

    The command restores FILE in the workspace of the current folder, which may be another folder than that of the
    backup. An empty folder becomes a workspace first. The ledger and the stored responses are merged with those that
    exist, so that nothing that you have paid for since the backup is lost. A registry that is not empty and files that
    differ from the backup are left unchanged unless you give --replace.
    """
    from ops.core.backup import restore_backup as put_back

    file = file.resolve()
    for part, said in put_back(open_or_create_workspace(), file, only, replace=replace).items():
        print_text(f"{part}: {said}")
