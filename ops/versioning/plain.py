"""A workspace without DVC, for example from a wheel's `podium init` if DVC is not installed.

A stage's output is then identified by a hash of its files. A checkout has DVC's folder, `.dvc`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ops.config import digest
from ops.core.atomic import TEMPORARY, sha256_of
from ops.core.checked import ASIDE
from ops.core.digests import SUFFIX
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.versioning.dvc import recorded_revision, stages_of


def has_dvc(workspace: Workspace) -> bool:
    """Return whether DVC records the data here."""
    return (workspace.root / ".dvc").is_dir()


def revision(workspace: Workspace) -> str:
    """Return twelve hex digits that identify the data of a model: the contents of dvc.lock, or the files. Raises
    `DataError`."""
    if has_dvc(workspace):
        return recorded_revision(workspace)
    return digest({stage: unrecorded(workspace, stage) for stage in _stages(workspace)})


def unrecorded(workspace: Workspace, stage: str) -> str:
    """Return a hash over names and contents of the output files of `stage` in dvc.yaml. Raises `DataError`."""
    # DVC writes an output with options as a mapping of its path to them.
    outs = [path for out in _stages(workspace)[stage]["outs"] for path in ([out] if isinstance(out, str) else out)]
    files = [file for out in outs for file in _files(workspace.root / out)]
    if not files:
        raise DataError(workspace.data, f"stage {stage!r}", "has written nothing", "Materialize it first")
    named = [[str(file.relative_to(workspace.root)), sha256_of(file)] for file in files]
    return digest(named)


def _stages(workspace: Workspace) -> dict[str, dict[str, Any]]:
    file = workspace.root / "dvc.yaml"
    try:
        return stages_of(file)
    except FileNotFoundError:
        raise DataError(file, "", "does not exist", "Restore it, or let `podium init` lay it out") from None


def _files(out: Path) -> list[Path]:
    if out.is_file():
        return [out]
    ignored = {*out.rglob(TEMPORARY), *out.rglob(ASIDE), *out.rglob(f"*{SUFFIX}")}
    return sorted(file for file in out.rglob("*") if file.is_file() and file not in ignored)
