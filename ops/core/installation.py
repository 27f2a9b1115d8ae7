"""Locate the files that belong to this installation, read its git commit, and name the commands that install missing
parts."""

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
"""The folder of `ops` that holds these files in a wheel (setup.py copies them there)."""


def resources_folder() -> Path:
    """Return the folder that contains `config/`, `data/` and `mlflow/agent.py` of this installation.

    In a wheel it is inside the package `ops`. In a checkout and in a released model it is the parent folder of `ops`.
    """
    packaged = _OPS / _PACKAGED
    return packaged if packaged.is_dir() else _OPS.parent


DISTRIBUTION = "podium-conductor"
"""The name of the distribution that pip installs."""
_CONSTRAINTS = "constraints.txt"


def pip_install_command(*requirements: str) -> str:
    """Return the pip command, in backquotes, that installs `requirements` in the versions that were tested."""
    constraints = resources_folder() / _CONSTRAINTS
    tested = ["-c", _relative_path(constraints)] if constraints.is_file() else []
    return f"`{shlex.join([_relative_path(Path(sys.executable)), '-m', 'pip', 'install', *tested, *requirements])}`"


def install_extra_command(extra: str) -> str:
    """Return the pip command, in backquotes, that installs an extra of pyproject.toml."""
    if is_checkout():
        return pip_install_command("-e", f"{_relative_path(resources_folder())}[{extra}]")
    return pip_install_command(
        f"{DISTRIBUTION}[{extra}]"
    )  # the distribution is installed already, so pip downloads only the extra's libraries


def make_command(target: str, otherwise: str) -> str:
    """Return the command for a target of the Makefile, or `otherwise` in a wheel, which has no Makefile."""
    if not is_checkout():
        return otherwise
    folder = _relative_path(resources_folder())
    return f"Run `make {target}`" if folder == "." else f"Run `make -C {shlex.quote(folder)} {target}`"


def is_checkout() -> bool:
    """Return whether this code runs from a checkout of its repository rather than from a wheel."""
    return (resources_folder() / "pyproject.toml").is_file() and (resources_folder() / "Makefile").is_file()


def _relative_path(path: Path) -> str:
    """Return the path as text, relative to the current folder if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def require_mlflow() -> None:
    """Raise `PodiumError` unless the library mlflow is installed.

    The check is needed because `import mlflow` succeeds in the project's folder even without the library: Python takes
    the folder `mlflow/` for a namespace package, which has none of the library's functions.
    """
    spec = importlib.util.find_spec("mlflow")
    if spec is None or spec.origin is None:
        raise PodiumError(f"{sys.executable}: the mlflow library is not installed. Run {pip_install_command('mlflow')}")


def git_commit(workspace: Workspace) -> str:
    """Return the commit of the workspace's checkout, followed by "-dirty" if tracked files other than dvc.lock were
    changed.

    Returns "uncommitted" for a repository without a commit, and "unknown" without a repository or without git.
    """
    if not (workspace.root / ".git").exists() or shutil.which("git") is None:
        return "unknown"
    head = _run_git(workspace, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return "uncommitted"
    changed = _run_git(workspace, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    return f"{head}-dirty" if changed else head


def _run_git(workspace: Workspace, *arguments: str) -> str:
    process = subprocess.run(
        ["git", "-C", str(workspace.root), *arguments], capture_output=True, text=True, check=False
    )
    return process.stdout.strip()
