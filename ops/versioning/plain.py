"""A workspace without DVC, such as a wheel's `podium init` lays out where DVC is not installed.

What a stage wrote is then named by a hash of its files. A checkout has DVC's folder, `.dvc`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ops.config import digest
from ops.core.atomic import TEMPORARY
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.versioning.dvc import recorded_revision, stages_of


def has_dvc(workspace: Workspace) -> bool:
    """Whether DVC records the data here."""
    return (workspace.root / ".dvc").is_dir()


def revision(workspace: Workspace) -> str:
    """Twelve hex digits that name the data of a model: what dvc.lock records, or the files. Raises `DataError`."""
    if has_dvc(workspace):
        return recorded_revision(workspace)
    return digest({stage: unrecorded(workspace, stage) for stage in _stages(workspace)})


def unrecorded(workspace: Workspace, stage: str) -> str:
    """A hash over names and contents of the files that dvc.yaml calls the outputs of `stage`. Raises `DataError`."""
    files = [file for out in _stages(workspace)[stage]["outs"] for file in _files(workspace.root / out)]
    if not files:
        raise DataError(workspace.data, f"stage {stage!r}", "has written nothing", "Materialize it first")
    named = [[str(file.relative_to(workspace.root)), hashlib.sha256(file.read_bytes()).hexdigest()] for file in files]
    return digest(named)


def _stages(workspace: Workspace) -> dict[str, dict[str, Any]]:
    file = workspace.root / "dvc.yaml"
    try:
        return stages_of(file)
    except FileNotFoundError:
        raise DataError(file, "(file)", "does not exist", "Restore it, or let `podium init` lay it out") from None


def _files(out: Path) -> list[Path]:
    if out.is_file():
        return [out]
    temporary = set(out.rglob(TEMPORARY))
    return sorted(file for file in out.rglob("*") if file.is_file() and file not in temporary)
