"""What code a run used."""

from __future__ import annotations

import shutil
import subprocess

from ops.core.errors import DataError
from ops.core.workspace import Workspace


def git_commit(workspace: Workspace) -> str:
    """The checked-out commit; "-dirty" follows when tracked files other than dvc.lock were changed.

    "uncommitted" in a repository without a commit, "unknown" without a repository or without git.
    """
    if not (workspace.root / ".git").exists() or shutil.which("git") is None:
        return "unknown"
    head = _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return "uncommitted"
    changed = _git(workspace, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    return f"{head}-dirty" if changed else head


def needs(workspace: Workspace, name: str, problem: str, remedy: str) -> None:
    """Raise `DataError` unless the checkout has `name`."""
    if not (workspace.root / name).exists():
        raise DataError(workspace.root, name, problem, remedy)


def _git(workspace: Workspace, *arguments: str) -> str:
    git = subprocess.run(["git", "-C", str(workspace.root), *arguments], capture_output=True, text=True, check=False)
    return git.stdout.strip()
