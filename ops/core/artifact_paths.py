"""Repair the absolute artifact paths in MLflow's SQLite store after a checkout was moved to another folder.

MLflow interprets a relative path relative to the current folder of the process, so its store has to hold absolute
paths. Everything that opens the store (`ops.release.mlflow_store`, the training curve, MLflow's server) or restores a
backup calls `repair_artifact_paths` first. One query finds out whether any stored path lies outside the workspace.
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
"""Table and column names in which MLflow 3 stores artifact paths. A store with another schema may lack some of them."""


def repair_artifact_paths(workspace: Workspace) -> int:
    """Rewrite the artifact paths in the workspace's own MLflow store after the workspace was moved.

    Returns the number of rewritten paths; 0 if the store is on a server or does not exist yet. The artifact folder of
    MLflow's experiment "Default" is corrected too, because MLflow derives it from the folder in which the store was
    created. Artifacts that were outside the old workspace keep their paths, and so does a workspace whose old path is
    another name of the same folder (a symbolic link).

    Raises `sqlite3.Error` if the store cannot be written, and `DataError` if something other than a file has its name.
    """
    file = workspace.results_folder / "mlflow" / "mlflow.db"
    if workspace.mlflow_uri != f"sqlite:///{file}" or not file.exists():
        return 0
    if not file.is_file():
        raise DataError(file, "", "is not a file, and MLflow's store belongs there", "Move it away")
    tail = workspace.mlflow_artifacts.relative_to(workspace.root)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _move_default(connection, workspace.mlflow_artifacts)
        old_folders = [
            folder for folder in _artifact_folders(connection, tail) if _was_moved(folder, workspace.mlflow_artifacts)
        ]
        if not old_folders:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        columns = _existing_path_columns(connection)
        count = sum(_rewrite_paths(connection, columns, folder, workspace.mlflow_artifacts) for folder in old_folders)
        connection.execute("COMMIT")  # until the commit, closing the connection undoes the changes
    if count:
        roots = ", ".join(str(folder).removesuffix(f"/{tail}") for folder in old_folders)
        said = "%s: the workspace was moved here from %s. The paths of %d artifacts are corrected to %s"
        log.warning(said, file, roots, count, workspace.root)
    return count


def _artifact_folders(connection: sqlite3.Connection, tail: Path) -> set[Path]:
    """Return the artifact folders of all experiments whose path ends like that of a workspace (`tail`)."""
    if ("experiments", "artifact_location") not in _existing_path_columns(connection):
        return set()
    folders = set()
    for (location,) in connection.execute("SELECT DISTINCT artifact_location FROM experiments"):
        parts = urlsplit(location or "")
        path = unquote(parts.path) if parts.scheme == "file" else location if not parts.scheme else ""
        root, has_tail, rest = (path or "").rpartition(f"/{tail}")
        if has_tail and root.startswith("/") and (not rest or rest.startswith("/")):
            folders.add(Path(root) / tail)
    return folders


def _move_default(connection: sqlite3.Connection, artifacts: Path) -> None:
    """Set the artifact folder of MLflow's experiment "Default", unless a user has put it somewhere else."""
    if ("experiments", "artifact_location") not in _existing_path_columns(connection):
        return
    default_folder = str(artifacts / "0")
    row = connection.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    if row is not None and row[0] != default_folder and str(row[0]).endswith("/mlruns/0"):
        connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0", (default_folder,))


def _was_moved(old: Path, new: Path) -> bool:
    """Return whether `old` is another folder than `new`, and not only another name of it."""
    return old != new and not (old.exists() and new.exists() and old.samefile(new))


def _existing_path_columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return those of `_PATH_COLUMNS` that this store has."""

    def known() -> Iterator[tuple[str, str]]:
        for table, column in _PATH_COLUMNS:
            if any(row[1] == column for row in connection.execute(f"PRAGMA table_info({table})")):
                yield table, column

    return list(known())


def _rewrite_paths(connection: sqlite3.Connection, columns: list[tuple[str, str]], old: Path, new: Path) -> int:
    """Replace the prefix `old` by `new` in all columns, in paths and in `file:` URIs. Return the number of changed
    values."""
    count = 0
    for before, after in ((old.as_uri(), new.as_uri()), (str(old), str(new))):
        for table, column in columns:
            update = connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (after, len(before) + 1, before, len(before) + 1, f"{before}/"),
            )
            count += update.rowcount
    return count
