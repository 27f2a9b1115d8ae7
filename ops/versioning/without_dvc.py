"""A workspace without DVC, for example one that `podium init` made where DVC is not installed.

The output of a stage is then identified by a hash of its files. A workspace with DVC has the folder `.dvc`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ops.config import digest
from ops.core.atomic import TEMPORARY, sha256_of
from ops.core.checked_files import DAMAGED_GLOB
from ops.core.digests import DIGEST_SUFFIX
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.versioning.dvc import read_stages, recorded_revision


def has_dvc(workspace: Workspace) -> bool:
    """Return whether DVC records the data of the workspace."""
    return (workspace.root / ".dvc").is_dir()


def compute_revision(workspace: Workspace) -> str:
    """Return twelve hex digits that identify the data behind a model: those of dvc.lock, or those of the files. Raises
    `DataError`."""
    if has_dvc(workspace):
        return recorded_revision(workspace)
    return digest({stage: hash_stage_output(workspace, stage) for stage in _read_stages(workspace)})


def hash_stage_output(workspace: Workspace, stage: str) -> str:
    """Return a hash of the names and contents of the files that `stage` of dvc.yaml writes. Raises `DataError`."""
    # DVC writes an output with options as a mapping of its path to them.
    outs = [path for out in _read_stages(workspace)[stage]["outs"] for path in ([out] if isinstance(out, str) else out)]
    files = [file for out in outs for file in _list_output_files(workspace.root / out)]
    if not files:
        raise DataError(workspace.data, f"stage {stage!r}", "has written nothing", "Materialize it first")
    named = [[str(file.relative_to(workspace.root)), sha256_of(file)] for file in files]
    return digest(named)


def _read_stages(workspace: Workspace) -> dict[str, dict[str, Any]]:
    file = workspace.root / "dvc.yaml"
    try:
        return read_stages(file)
    except FileNotFoundError:
        raise DataError(file, "", "does not exist", "Restore it, or let `podium init` lay it out") from None


def _list_output_files(out: Path) -> list[Path]:
    if out.is_file():
        return [out]
    ignored = {*out.rglob(TEMPORARY), *out.rglob(DAMAGED_GLOB), *out.rglob(f"*{DIGEST_SUFFIX}")}
    return sorted(file for file in out.rglob("*") if file.is_file() and file not in ignored)
