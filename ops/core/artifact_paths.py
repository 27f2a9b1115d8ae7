"""Repair of the absolute paths of artifacts in MLflow's SQLite store after a checkout was moved to another folder.

MLflow reads a relative path as relative to the current folder of the process, so its store holds absolute ones. What
opens the store (`ops.release.mlflow_store`, a training's curve, MLflow's server) and what restores a backup calls
`repair_artifact_paths` first: one query finds whether a path is outside of the workspace.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ops.core.errors import DataError
from ops.core.sqlite import BUSY_TIMEOUT_S
from ops.core.workspace import Workspace

log = logging.getLogger(__name__)

_PATH_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
"""Columns in which MLflow 3 stores paths of artifacts. A store of another schema may lack some."""


def repair_artifact_paths(workspace: Workspace) -> int:
    """Rewrite the artifact paths in the workspace's own MLflow store after a move. Returns the number of rewritten
    paths.

    MLflow's experiment "Default" is included: MLflow gives it a path in the folder where the store was made. A server's
    store, artifacts outside the old folder, and an old folder that is the same folder under another name are unchanged.
    Raises `sqlite3.Error` if the file cannot be written, and `DataError` if it is not a file.
    """
    file = workspace.results_folder / "mlflow" / "mlflow.db"
    if workspace.mlflow_uri != f"sqlite:///{file}" or not file.exists():
        return 0
    if not file.is_file():
        raise DataError(file, "", "is not a file, and MLflow's store belongs there", "Move it away")
    tail = workspace.mlflow_artifacts.relative_to(workspace.root)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _move_default(connection, workspace.mlflow_artifacts)
        old = [
            folder for folder in _artifact_folders(connection, tail) if _was_moved(folder, workspace.mlflow_artifacts)
        ]
        if not old:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        places = _existing_path_columns(connection)
        count = sum(_rewrite_paths(connection, places, folder, workspace.mlflow_artifacts) for folder in old)
        connection.execute("COMMIT")  # until the commit, closing the connection undoes the changes
    if count:
        roots = ", ".join(str(folder).removesuffix(f"/{tail}") for folder in old)
        said = "%s: the workspace was moved here from %s. The paths of %d artifacts are corrected to %s"
        log.warning(said, file, roots, count, workspace.root)
    return count


def _artifact_folders(connection: sqlite3.Connection, tail: Path) -> set[Path]:
    """Return the artifact folders of experiments that end like a checkout's own."""
    if ("experiments", "artifact_location") not in _existing_path_columns(connection):
        return set()
    folders = set()
    for (location,) in connection.execute("SELECT DISTINCT artifact_location FROM experiments"):
        parts = urlsplit(location or "")
        path = unquote(parts.path) if parts.scheme == "file" else location if not parts.scheme else ""
        root, found, rest = (path or "").rpartition(f"/{tail}")
        if found and root.startswith("/") and (not rest or rest.startswith("/")):
            folders.add(Path(root) / tail)
    return folders


def _move_default(connection: sqlite3.Connection, artifacts: Path) -> None:
    """Move the artifacts of MLflow's own experiment to those of the store, unless they are elsewhere on purpose."""
    if ("experiments", "artifact_location") not in _existing_path_columns(connection):
        return
    own = str(artifacts / "0")
    found = connection.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    if found is not None and found[0] != own and str(found[0]).endswith("/mlruns/0"):
        connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0", (own,))


def _was_moved(old: Path, new: Path) -> bool:
    return old != new and not (old.exists() and new.exists() and old.samefile(new))


def _existing_path_columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    def known() -> Iterator[tuple[str, str]]:
        for table, column in _PATH_COLUMNS:
            if any(row[1] == column for row in connection.execute(f"PRAGMA table_info({table})")):
                yield table, column

    return list(known())


def _rewrite_paths(connection: sqlite3.Connection, places: list[tuple[str, str]], old: Path, new: Path) -> int:
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
