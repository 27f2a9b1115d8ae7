"""What cannot be made again (money's traces and the registry) in one file, copied while it is in use.

What lies in engines of a team is backed up by their own tools; `pg_dump` for one (docs/deployment.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ops.core.errors import DataError
from ops.core.moved import settle
from ops.core.sqlite import BUSY_TIMEOUT_S
from ops.core.workspace import Workspace

_MANIFEST = "podium-backup.json"
_FORMAT = 1


class Part(NamedTuple):
    """One thing to keep: a SQLite file or a folder of files, by its place below `.podium`."""

    name: str
    place: str
    elsewhere: str
    """The environment variable that, set, says that a server has it."""


PARTS = (
    # In this order. What the ledger knows of is in the cache that is copied after it, since answers are stored before
    # they are booked; what the registry names is in the folder that is copied after it.
    Part("ledger", "ledger.sqlite", "PODIUM_LEDGER_URL"),
    Part("cache", "cache/responses.sqlite", "PODIUM_CACHE_URL"),
    Part("registry", "mlflow/mlflow.db", "MLFLOW_TRACKING_URI"),
    Part("registry's artifacts", "mlflow/artifacts", "MLFLOW_TRACKING_URI"),
    Part("snapshots", "snapshots", ""),
)


def backup(workspace: Workspace, file: Path) -> dict[str, str]:
    """Write every part that there is into `file`, a tar archive, while others may write. Part → what became of it.

    The file appears whole or not at all. Raises `DataError` where there is nothing to keep, `OSError`.
    """
    said: dict[str, str] = {}
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as scratch:
        staged, sums = Path(scratch, "state"), dict[str, str]()
        for part in PARTS:
            source, target = workspace.state / part.place, staged / part.place
            if part.elsewhere and os.environ.get(part.elsewhere):
                said[part.name] = f"not here: {part.elsewhere} names a server"
            elif not source.exists():
                said[part.name] = "none"
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(source, target)
                own = {str(path.relative_to(staged)): _sha256(path) for path in _files(target)}
                sums |= own
                size = sum((staged / name).stat().st_size for name in own)
                said[part.name] = f"{len(own):,} file{'s' * (len(own) != 1)}, {size:,} bytes"
        if not sums:
            raise DataError(workspace.state, "(folder)", "holds nothing to keep", "Run a life first")
        manifest = {"format": _FORMAT, "made": time.time(), "root": str(workspace.root), "sha256": sums}
        Path(staged, _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        whole = Path(scratch, "archive")
        with tarfile.open(whole, "w:gz", compresslevel=1) as archive:
            archive.add(staged, arcname=".")
        whole.replace(file)
    return said


def restore(workspace: Workspace, file: Path) -> list[str]:
    """Put what `file` holds into the workspace, which may lie elsewhere than the one that it is of. Returns its parts.

    Nothing is replaced. Raises `DataError` where something is there already, and for a file that is no back-up, or a
    damaged one; then nothing has changed.
    """
    workspace.state.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=workspace.state, prefix=".restore.") as scratch:
        staged = Path(scratch)
        _extract(file, staged)
        held = [part for part in PARTS if (staged / part.place).exists()]
        for part in held:
            place = workspace.state / part.place
            if place.is_file() or any(_files(place)):
                remedy = "Move it away, or restore into a checkout without a life"
                raise DataError(place, "(path)", "is there already", remedy)
        for part in held:
            place = workspace.state / part.place
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                shutil.rmtree(place)  # empty folders
            (staged / part.place).rename(place)
    settle(workspace)
    return [part.name for part in held]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        # What is being written beside its place, to be renamed, is nothing yet.
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*.tmp"))
        return
    # SQLite's own copy: of one moment, whoever writes meanwhile.
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)) as here,
        closing(sqlite3.connect(target)) as there,
    ):
        here.backup(there)


def _extract(file: Path, staged: Path) -> None:
    try:
        with tarfile.open(file) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(staged, filter="data")
            else:  # CPython before 3.11.4
                _extract_plainly(archive, staged)
        manifest = json.loads((staged / _MANIFEST).read_text(encoding="utf-8"))
        wanted, made_by = dict(manifest["sha256"]), int(manifest["format"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        remedy = "Name a file that `podium backup` wrote"
        raise DataError(file, "(file)", f"is no back-up, or half of one ({error})", remedy) from None
    if made_by > _FORMAT:
        raise DataError(file, "format", f"is {made_by}, and this Podium knows up to {_FORMAT}", "Update Podium")
    (staged / _MANIFEST).unlink()
    sums = {str(path.relative_to(staged)): _sha256(path) for path in _files(staged)}
    if damaged := sorted(name for name in wanted.keys() | sums.keys() if wanted.get(name) != sums.get(name)):
        raise DataError(file, damaged[0], "is not what was backed up", "Take another back-up")


def _extract_plainly(archive: tarfile.TarFile, staged: Path) -> None:
    """Files and folders alone, none of which lies elsewhere: all that `backup` writes."""
    for member in archive:
        target = (staged / member.name).resolve()
        if not target.is_relative_to(staged.resolve()) or not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"{member.name} is no file or folder of a back-up")
        archive.extract(member, staged, set_attrs=False)


def _files(place: Path) -> Iterator[Path]:
    return (path for path in ([place] if place.is_file() else sorted(place.rglob("*"))) if path.is_file())


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
