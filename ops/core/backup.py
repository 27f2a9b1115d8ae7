"""Back up data that cannot be made again (responses, ledger, registry), and move checkouts to another folder.

A team's databases are backed up by their own tools, for example `pg_dump` (docs/deployment.md).

MLflow's SQLite store holds the absolute path of every artifact, and reads a relative one as relative to the current
folder of the process. Therefore `settle` rewrites the paths in one transaction when the store is next opened.
"""

from __future__ import annotations

import json
import logging
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
from urllib.parse import unquote, urlsplit

from ops.core.atomic import sha256_of
from ops.core.errors import DataError
from ops.core.sqlite import BUSY_TIMEOUT_S
from ops.core.workspace import Workspace

log = logging.getLogger(__name__)

_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
"""Columns in which MLflow 3 stores paths of artifacts. A store of another schema may lack some."""


def settle(workspace: Workspace) -> int:
    """Rewrite the artifact paths in the workspace's own MLflow store after a move. Returns the number of rewritten
    paths.

    MLflow's experiment "Default" is included: MLflow gives it a path in the folder where the store was made. A server's
    store, artifacts outside the old folder, and an old folder that is the same folder under another name are unchanged.
    Raises `sqlite3.Error` if the file cannot be written, and `DataError` if it is not a file.
    """
    file = workspace.outcome / "mlflow" / "mlflow.db"
    if workspace.mlflow_uri != f"sqlite:///{file}" or not file.exists():
        return 0
    if not file.is_file():
        raise DataError(file, "", "is not a file, and MLflow's store belongs there", "Move it away")
    tail = workspace.mlflow_artifacts.relative_to(workspace.root)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _settle_default(connection, workspace.mlflow_artifacts)
        old = [folder for folder in _artifact_folders(connection, tail) if _moved(folder, workspace.mlflow_artifacts)]
        if not old:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        places = _columns(connection)
        count = sum(_rewrite(connection, places, folder, workspace.mlflow_artifacts) for folder in old)
        connection.execute("COMMIT")  # until the commit, closing the connection undoes the changes
    if count:
        roots = ", ".join(str(folder).removesuffix(f"/{tail}") for folder in old)
        log.warning("%s: this checkout lay in %s: %d places of artifacts now name %s", file, roots, count,
                    workspace.root)  # fmt: skip
    return count


def _artifact_folders(connection: sqlite3.Connection, tail: Path) -> set[Path]:
    """Return the artifact folders of experiments that end like a checkout's own."""
    if ("experiments", "artifact_location") not in _columns(connection):
        return set()
    folders = set()
    for (location,) in connection.execute("SELECT DISTINCT artifact_location FROM experiments"):
        parts = urlsplit(location or "")
        path = unquote(parts.path) if parts.scheme == "file" else location if not parts.scheme else ""
        root, found, rest = (path or "").rpartition(f"/{tail}")
        if found and root.startswith("/") and (not rest or rest.startswith("/")):
            folders.add(Path(root) / tail)
    return folders


def _settle_default(connection: sqlite3.Connection, artifacts: Path) -> None:
    """Move the artifacts of MLflow's own experiment to those of the store, unless they are elsewhere on purpose."""
    if ("experiments", "artifact_location") not in _columns(connection):
        return
    own = str(artifacts / "0")
    found = connection.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    if found is not None and found[0] != own and str(found[0]).endswith("/mlruns/0"):
        connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0", (own,))


def _moved(old: Path, new: Path) -> bool:
    return old != new and not (old.exists() and new.exists() and old.samefile(new))


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    def known() -> Iterator[tuple[str, str]]:
        for table, column in _PLACES:
            if any(row[1] == column for row in connection.execute(f"PRAGMA table_info({table})")):
                yield table, column

    return list(known())


def _rewrite(connection: sqlite3.Connection, places: list[tuple[str, str]], old: Path, new: Path) -> int:
    count = 0
    for before, after in ((old.as_uri(), new.as_uri()), (str(old), str(new))):
        for table, column in places:
            update = connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (after, len(before) + 1, before, len(before) + 1, f"{before}/"),
            )
            count += update.rowcount
    return count


_MANIFEST = "podium-backup.json"
_FORMAT = 1


class BackupPart(NamedTuple):
    """One part of a backup: a SQLite file or a folder of files, by its path below `.podium`."""

    name: str
    place: str
    elsewhere: str
    """The environment variable that names the server which, if set, has this part instead."""


PARTS = (
    # The order matters. The cache is copied after the ledger, since answers are stored before they are booked;
    # artifacts are copied after the registry that names them.
    BackupPart("ledger", "ledger.sqlite", "PODIUM_LEDGER_URL"),
    BackupPart("cache", "cache/responses.sqlite", "PODIUM_CACHE_URL"),
    BackupPart("registry", "mlflow/mlflow.db", "MLFLOW_TRACKING_URI"),
    BackupPart("registry's artifacts", "mlflow/artifacts", "MLFLOW_TRACKING_URI"),
    BackupPart("snapshots", "snapshots", ""),
)


def backup(workspace: Workspace, file: Path) -> dict[str, str]:
    """Write every existing part into `file`, a tar archive, while other processes may write. Return part → result.

    The file appears atomically. Raises `DataError` if there is nothing to back up, and `OSError`.
    """
    said: dict[str, str] = {}
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as scratch:
        staged, sums = Path(scratch, "state"), dict[str, str]()
        for part in PARTS:
            source, target = workspace.state / part.place, staged / part.place
            # MLflow keeps the address of an own store in the environment too, while it is in use.
            if os.environ.get(part.elsewhere) not in (None, "", f"sqlite:///{workspace.state / 'mlflow/mlflow.db'}"):
                said[part.name] = f"not here: {part.elsewhere} names a server"
            elif not source.exists():
                said[part.name] = "none"
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(source, target)
                own = {str(path.relative_to(staged)): sha256_of(path) for path in _files(target)}
                sums |= own
                size = sum((staged / name).stat().st_size for name in own)
                said[part.name] = f"{len(own):,} file{'s' * (len(own) != 1)}, {size:,} bytes"
        if not sums:
            raise DataError(workspace.state, "", "has nothing to back up", "Start with `podium run`")
        manifest = {"format": _FORMAT, "made": time.time(), "root": str(workspace.root), "sha256": sums}
        Path(staged, _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        whole = Path(scratch, "archive")
        with tarfile.open(whole, "w:gz", compresslevel=1) as archive:
            archive.add(staged, arcname=".")
        whole.replace(file)
    return said


def restore(workspace: Workspace, file: Path) -> list[str]:
    """Restore a backup into the workspace, which may be in another folder than the original. Returns its parts.

    Raises `DataError` for an existing file, and for a backup that is invalid or damaged; then nothing has changed.
    """
    workspace.state.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=workspace.state, prefix=".restore.") as scratch:
        staged = Path(scratch)
        _extract(file, staged)
        held = [part for part in PARTS if (staged / part.place).exists()]
        for part in held:
            place = workspace.state / part.place
            if place.is_file() or any(_files(place)):
                remedy = "Move it away, or restore into a checkout without state"
                raise DataError(place, "", "is there already", remedy)
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
        # A temporary file that is still being written is not part of the backup.
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*.tmp"))
        return
    # SQLite's own copy is consistent while other processes write.
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
        raise DataError(file, "", f"is not a complete back-up ({error})", remedy) from None
    if made_by > _FORMAT:
        raise DataError(
            file, "format", f"is {made_by}, and this version of Podium reads formats up to {_FORMAT}", "Update Podium"
        )
    (staged / _MANIFEST).unlink()
    sums = {str(path.relative_to(staged)): sha256_of(path) for path in _files(staged)}
    if damaged := sorted(name for name in wanted.keys() | sums.keys() if wanted.get(name) != sums.get(name)):
        raise DataError(file, damaged[0], "differs from the backed-up file", "Take another back-up")


def _extract_plainly(archive: tarfile.TarFile, staged: Path) -> None:
    """Extract only files and folders inside the target, which is all that `backup` writes."""
    for member in archive:
        target = (staged / member.name).resolve()
        if not target.is_relative_to(staged.resolve()) or not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"{member.name} is not a file or folder of a back-up")
        archive.extract(member, staged, set_attrs=False)


def _files(place: Path) -> Iterator[Path]:
    return (path for path in ([place] if place.is_file() else sorted(place.rglob("*"))) if path.is_file())
