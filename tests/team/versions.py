"""DVC in a team: a remote in the S3 store, and the data of a stage fetched elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ops.core.workspace import Workspace
from ops.versioning.dvc import find_program
from tests.team.servers import S3


def dvc(workspace: Workspace, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a DVC command as a person does."""
    done = subprocess.run(
        [find_program(workspace), *arguments], cwd=workspace.root, env={**os.environ, **(environment or {})},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def remote_in(store: S3, workspace: Workspace, name: str = "dvc") -> None:
    """Make the S3 store the default remote, as docs/deployment.md says."""
    dvc(workspace, "remote", "add", "--default", "store", f"s3://{store.bucket}/{name}")
    dvc(workspace, "remote", "modify", "store", "endpointurl", store.url)
    dvc(workspace, "remote", "modify", "store", "read_timeout", "10")


def pulled(workspace: Workspace, folder: Path, stage: str, environment: Mapping[str, str]) -> Workspace:
    """Return a checkout in `folder` with the files in git and those that `dvc pull` of the stage fetches."""
    for name in (".dvc/config", "dvc.yaml", "dvc.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(workspace.root / name, folder / name)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True, timeout=240)
    dvc(Workspace(folder), "pull", stage, environment=environment)
    return Workspace(folder)
