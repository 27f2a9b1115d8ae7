"""The thin edge to DVC and git: what data a run used, and what code.

What belongs here: recording a stage's outputs in dvc.lock, and reading revisions.
What does not: making those outputs (`ops.benchmarks.stage`, `ops.curation.stage`, `ops.workers`).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ops.benchmarks.store import write_text
from ops.config import Recipe
from ops.errors import DataError
from ops.workspace import Workspace

LOCK_TIMEOUT_S = 300.0
"""How long a process waits for another's DVC call: a repository takes one at a time."""


def commit(workspace: Workspace, stage: str) -> str:
    """Record the files that `stage` has written in dvc.lock and DVC's cache, running nothing.

    Returns the stage's `version`. Calls from other processes and threads wait for each other. Raises
    `DataError` when the workspace is no git repository with DVC, the stage is unknown or a file is missing.
    """
    _needs(workspace, ".git", "is no git repository", "Clone the project, or run `git init` there")
    _needs(workspace, ".dvc", "has no DVC configuration", "Restore the folder .dvc, or run `dvc init`")
    with _one_at_a_time(workspace):
        # A process of its own (a third of a second): DVC's Python interface works in the current
        # directory only, and changing that would change it for every thread of the caller.
        found = subprocess.run(
            [sys.executable, "-m", "dvc", "commit", "--force", stage],
            cwd=workspace.root,
            env={**os.environ, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(workspace.state / "dvc")},
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != 0:
            said = found.stderr.strip().removeprefix("ERROR: ").splitlines() or ["no reason given"]
            problem = f"cannot be committed ({said[0]})"
            remedy = "Materialize the stage's files first, then commit again"
            raise DataError(workspace.root / "dvc.yaml", f"stage {stage!r}", problem, remedy)
        return version(workspace, stage)


def version(workspace: Workspace, stage: str) -> str:
    """The md5 of the stage's only output, or of its outputs' md5s in order of path. Raises `DataError`."""
    recorded = _locked_stages(workspace).get(stage)
    if not recorded or not recorded.get("outs"):
        raise DataError(_lock(workspace), f"stage {stage!r}", "is not recorded", "Materialize it first")
    outs = sorted((str(out["path"]), str(out["md5"])) for out in recorded["outs"])
    if len(outs) == 1:
        return outs[0][1]
    text = "\n".join(f"{path} {md5}" for path, md5 in outs)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def revision(workspace: Workspace) -> str:
    """Twelve hex digits of the SHA-256 of dvc.lock: the data that a model was made of. Raises `DataError`."""
    _locked_stages(workspace)
    return hashlib.sha256(_lock(workspace).read_bytes()).hexdigest()[:12]


def git_commit(workspace: Workspace) -> str:
    """The checked-out commit; "-dirty" follows when tracked files other than dvc.lock were changed.

    "uncommitted" in a repository without a commit. Raises `DataError` where there is no git repository.
    """
    _needs(workspace, ".git", "is no git repository", "Clone the project, or run `git init` there")
    head = _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return "uncommitted"
    changed = _git(workspace, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)dvc.lock")
    return f"{head}-dirty" if changed else head


def use_recipe(workspace: Workspace, recipe: Recipe, name: str) -> None:
    """Make params.yaml name the recipe file `name` and its pool, so that dvc.lock records what really ran."""
    file = workspace.root / "params.yaml"
    wanted = {"recipe": name, "pool": recipe.pool}
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    if yaml.safe_load("\n".join(lines)) == wanted:
        return
    kept = [line for line in lines if line.startswith("#")]
    write_text(file, "\n".join([*kept, *(f"{key}: {value}" for key, value in wanted.items())]) + "\n")


@contextmanager
def _one_at_a_time(workspace: Workspace) -> Iterator[None]:
    from filelock import FileLock, Timeout

    workspace.state.mkdir(parents=True, exist_ok=True)
    file = workspace.state / "dvc.filelock"
    try:
        with FileLock(file, timeout=LOCK_TIMEOUT_S):
            yield
    except Timeout:
        problem = f"is held by another process for over {LOCK_TIMEOUT_S:.0f} s"
        raise DataError(file, "(file)", problem, "End the process that runs DVC in this workspace") from None


def _locked_stages(workspace: Workspace) -> dict[str, dict[str, Any]]:
    file = _lock(workspace)
    try:
        stages: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["stages"]
    except FileNotFoundError:
        raise DataError(file, "(file)", "does not exist", "Materialize a data stage first") from None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise DataError(file, "(file)", f"is no lock file ({error})", "Restore it with git") from None
    return stages


def _lock(workspace: Workspace) -> Path:
    return workspace.root / "dvc.lock"


def _needs(workspace: Workspace, name: str, problem: str, remedy: str) -> None:
    if not (workspace.root / name).exists():
        raise DataError(workspace.root, name, problem, remedy)


def _git(workspace: Workspace, *arguments: str) -> str:
    found = subprocess.run(["git", "-C", str(workspace.root), *arguments], capture_output=True, text=True, check=False)
    return found.stdout.strip()
