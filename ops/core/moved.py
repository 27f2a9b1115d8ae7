"""A checkout that lies in another folder than when its registry was written.

MLflow's SQLite store holds the absolute place of every artifact, and it reads a relative one as relative to whatever
folder a process happens to run in. So the places are rewritten when the store is next opened, in one transaction.
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

_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
"""Where MLflow 3 keeps places of artifacts. A store of another schema may lack some."""


def settle(workspace: Workspace) -> int:
    """Let the workspace's own MLflow store name the folder that it lies in. Returns how many places were rewritten.

    MLflow's experiment "Default" is one of them: MLflow gives it a place in the folder where the store was made.
    Nothing is done to a server's store, to artifacts that lie elsewhere on purpose, and where the old folder is the
    new one by another name. Raises `sqlite3.Error` when the file cannot be written,
    `DataError` when it is no file.
    """
    file = workspace.outcome / "mlflow" / "mlflow.db"
    if workspace.mlflow_uri != f"sqlite:///{file}" or not file.exists():
        return 0
    if not file.is_file():
        raise DataError(file, "(file)", "is no file, and MLflow's store is to be there", "Move it away")
    tail = workspace.mlflow_artifacts.relative_to(workspace.root)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        _settle_default(connection, workspace.mlflow_artifacts)
        old = [folder for folder in _artifact_folders(connection, tail) if _moved(folder, workspace.mlflow_artifacts)]
        if not old:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        places = _columns(connection)
        count = sum(_rewrite(connection, places, folder, workspace.mlflow_artifacts) for folder in old)
        connection.execute("COMMIT")  # until then closing the connection undoes all of it
    if count:
        roots = ", ".join(str(folder).removesuffix(f"/{tail}") for folder in old)
        log.warning("%s: this checkout lay in %s: %d places of artifacts now name %s", file, roots, count,
                    workspace.root)  # fmt: skip
    return count


def _artifact_folders(connection: sqlite3.Connection, tail: Path) -> set[Path]:
    """The folders of artifacts that experiments name and that end as a checkout's own does."""
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
