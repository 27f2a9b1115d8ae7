"""This code's installation: the files beside it, its commit, and commands that install what is missing."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace

_OPS = Path(__file__).resolve().parents[1]
_PACKAGED = "files"
"""The folder of `ops` in which a wheel has these files (setup.py copies them there)."""


def resources_folder() -> Path:
    """Return the folder with `config/`, `data/` and `mlflow/agent.py` of this code.

    A wheel has them inside `ops`; a checkout and a released model have them beside it.
    """
    packaged = _OPS / _PACKAGED
    return packaged if packaged.is_dir() else _OPS.parent


DISTRIBUTION = "podium-conductor"
"""The name of this code's distribution for pip."""
_CONSTRAINTS = "constraints.txt"


def pip_install_command(*requirements: str) -> str:
    """Return the command, in backquotes, that installs `requirements` in the tested versions."""
    constraints = resources_folder() / _CONSTRAINTS
    tested = ["-c", _relative_path(constraints)] if constraints.is_file() else []
    return f"`{shlex.join([_relative_path(Path(sys.executable)), '-m', 'pip', 'install', *tested, *requirements])}`"


def install_extra_command(extra: str) -> str:
    """Return the command, in backquotes, that installs an extra of pyproject.toml."""
    if is_checkout():
        return pip_install_command("-e", f"{_relative_path(resources_folder())}[{extra}]")
    return pip_install_command(
        f"{DISTRIBUTION}[{extra}]"
    )  # already installed: pip only downloads the extra's libraries


def make_command(target: str, otherwise: str) -> str:
    """Return the command for a target of the Makefile; `otherwise` in a wheel, which has no Makefile."""
    if not is_checkout():
        return otherwise
    there = _relative_path(resources_folder())
    return f"Run `make {target}`" if there == "." else f"Run `make -C {shlex.quote(there)} {target}`"


def is_checkout() -> bool:
    """Return whether this code runs from its repository."""
    return (resources_folder() / "pyproject.toml").is_file() and (resources_folder() / "Makefile").is_file()


def _relative_path(path: Path) -> str:
    """Return the path, relative to the current folder if it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def require_mlflow() -> None:
    """Raise `PodiumError` unless the mlflow library is installed.

    Without it `import mlflow` succeeds in the project's folder: Python takes the folder `mlflow/` for a package
    without an `__init__.py`, which has neither a file nor any of the library's functions.
    """
    spec = importlib.util.find_spec("mlflow")
    if spec is None or spec.origin is None:
        raise PodiumError(f"{sys.executable}: the mlflow library is not installed. Run {pip_install_command('mlflow')}")


def git_commit(workspace: Workspace) -> str:
    """Return the checked-out commit; "-dirty" follows if tracked files other than dvc.lock were changed.

    "uncommitted" in a repository without a commit, "unknown" without a repository or without git.
    """
    if not (workspace.root / ".git").exists() or shutil.which("git") is None:
        return "unknown"
    head = _run_git(workspace, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return "uncommitted"
    changed = _run_git(workspace, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    return f"{head}-dirty" if changed else head


def _run_git(workspace: Workspace, *arguments: str) -> str:
    git = subprocess.run(["git", "-C", str(workspace.root), *arguments], capture_output=True, text=True, check=False)
    return git.stdout.strip()
