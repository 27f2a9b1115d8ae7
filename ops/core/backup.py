"""Back up what cannot be computed again (responses, ledger, registry, a user's files), and restore it, also in another
folder.

A team's databases are backed up by their own tools, for example pg_dump (docs/deployment.md). A restore adds to what
exists: a ledger and a cache are merged with those of the backup, so that nothing that was paid for after the backup is
lost. Other existing files are replaced only on request.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ops.core.artifact_paths import repair_artifact_paths
from ops.core.atomic import TEMPORARY, replace_atomically, sha256_of, temporary_folder_beside
from ops.core.errors import DataError, format_count
from ops.core.installation import resources_folder
from ops.core.processes import hold_run_lock
from ops.core.sqlite import BUSY_TIMEOUT_S, SqliteFile, has_content
from ops.core.workspace import Workspace
from ops.core.workspace_parts import (
    ARTIFACTS,
    CACHE,
    EARLIER_STORES,
    LEDGER,
    PARTS,
    REGISTRY,
    STORE_VERSION,
    WorkspacePart,
    accept_missing_parts,
    count_rows,
    find_missing_parts,
)

_MANIFEST = "podium-backup.json"
_FORMAT = 2
"""The version of the archive's format. Version 1 did not contain the user's files."""
USER_FILES = "files"
"""The name of the part with a user's own files, and its folder in the archive."""
RESTORABLE = (*(part.name for part in PARTS), USER_FILES)
"""Names of the parts that can be restored individually. "registry" includes its artifacts."""
_USER_FILE_PATTERNS = (
    ".dvc/config", ".dvcignore", ".env.example", ".gitignore", "config/**/*", "dagster.yaml", "data/cold_start/**/*",
    "data/few_shots/**/*", "dvc.yaml", "graders/**/*",
)  # fmt: skip
"""Where a user's own files are; files that the configuration names are added. `.env` holds keys and is never backed up.
"""


def create_backup(workspace: Workspace, file: Path) -> dict[str, str]:
    """Write all existing parts of the workspace into the tar archive `file`. Other processes may write meanwhile.

    Returns what was done with each part, by its name. The archive appears atomically, and temporary files of killed
    backups beside it are removed. Raises `DataError` if there is nothing to back up, if a part cannot be read or if the
    file exists already, and `OSError`.
    """
    results: dict[str, str] = {}
    with temporary_folder_beside(file) as scratch:
        staged, sums = scratch / "state", dict[str, str]()
        staged.mkdir()
        for part in PARTS:
            source = workspace.state / part.relative_path
            if part.is_on_server(workspace):
                results[part.name] = f"not here: {part.server_variable} names a server"
            elif not (source.is_dir() or has_content(source)):
                results[part.name] = "none"
        present = [part for part in PARTS if part.name not in results]
        _copy_parts(workspace, staged, present)
        user_files, left_out = _find_user_files(workspace)
        for path in user_files:
            target = staged / USER_FILES / path.relative_to(workspace.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        for name, part_path in (*((part.name, part.relative_path) for part in present), (USER_FILES, USER_FILES)):
            digests = {str(path.relative_to(staged)): sha256_of(path) for path in _list_files(staged / part_path)}
            sums |= digests
            size = sum((staged / file_name).stat().st_size for file_name in digests)
            results[name] = f"{format_count(len(digests), 'file')}, {size:,} bytes"
        if not present:
            raise DataError(workspace.state, "", "has nothing to back up", "Start with `podium run`")
        if left_out:
            results["left out"] = "; ".join(left_out)
        results |= {f"missing {number}": str(error) for number, error in enumerate(find_missing_parts(workspace), 1)}
        manifest = {"format": _FORMAT, "made": time.time(), "root": str(workspace.root), "sha256": sums}
        (staged / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        archive_file = scratch / "archive"
        with tarfile.open(archive_file, "w:gz", compresslevel=1) as archive:
            archive.add(staged, arcname=".")
        if file.exists():
            raise DataError(file, "", "was made by another process meanwhile", "Name another file")
        archive_file.replace(file)
    return results


def restore_backup(
    workspace: Workspace, file: Path, part_names: Collection[str] = (), *, replace: bool = False
) -> dict[str, str]:
    """Restore a backup into the workspace, which may be in another folder than the original. Returns the result of each
    part by name.

    `part_names` selects parts (names in `RESTORABLE`); by default every part is restored. Ledger and cache are merged,
    so that nothing that was paid for after the backup is lost. A registry with contents, and files that differ from the
    backup's, stay unchanged unless `replace` is set; then they are replaced, and the present ones are kept (a database
    beside the new one, a file in `.podium/replaced-…`). A database that cannot be read is kept in the same way. A
    restore that was interrupted is completed by the same call.

    Raises `DataError` for a backup that is invalid or damaged, or that lacks one of `part_names`; nothing has been
    changed then. Raises `PodiumError` while a pipeline run of the workspace is active.
    """
    workspace.state.mkdir(parents=True, exist_ok=True)
    with hold_run_lock(workspace), temporary_folder_beside(workspace.state / "restore") as staged:
        _extract(file, staged)
        wanted = set(part_names or RESTORABLE) | ({ARTIFACTS.name} if REGISTRY.name in part_names else set())
        selected = [part for part in PARTS if part.name in wanted and (staged / part.relative_path).exists()]
        if missing := sorted(set(part_names) - {part.name for part in selected} - {USER_FILES} - {ARTIFACTS.name}):
            raise DataError(file, missing[0], "is not in this backup", "Name a part that it has, or none for all")
        for part in selected:
            if part is CACHE:
                for store in (workspace.state / part.relative_path, staged / part.relative_path):
                    _upgrade_store(store)
            if part.tables:
                _check_version(workspace.state / part.relative_path, staged / part.relative_path)
        results = {}
        for part in selected:
            place = workspace.state / part.relative_path
            place.parent.mkdir(parents=True, exist_ok=True)
            if part is REGISTRY:
                results[part.name] = _restore_registry(place, staged / part.relative_path, replace=replace)
            elif part.tables:
                results[part.name] = _merge_database(place, staged / part.relative_path, part)
            else:
                results[part.name] = _restore_files(workspace, place, staged / part.relative_path, replace=replace)
        if USER_FILES in wanted and (staged / USER_FILES).is_dir():
            results[USER_FILES] = _restore_files(
                workspace, workspace.root, staged / USER_FILES, replace=replace, written=True
            )
    repair_artifact_paths(workspace)
    if databases := [part for part in selected if part.tables]:
        accept_missing_parts(workspace, *databases)
    return results


# ── what a backup takes ─────────────────────────────────────────────────────


def _copy_parts(workspace: Workspace, staged: Path, parts: Collection[WorkspacePart]) -> None:
    """Copy these parts so that cache and ledger are consistent with each other, apart from replies that arrive at that
    moment.

    The large cache is copied first. Then, while no process can record a call, the ledger is copied, together with the
    responses that were added to the cache meanwhile.
    """
    if CACHE in parts:
        _upgrade_store(workspace.state / CACHE.relative_path)
    for part in (CACHE, *(part for part in PARTS if part not in (CACHE, LEDGER))):
        if part in parts:
            _copy_database(workspace.state / part.relative_path, staged / part.relative_path)
    if LEDGER in parts:
        with (
            _report_database_errors(ledger_file := workspace.state / LEDGER.relative_path),
            closing(_open_database(ledger_file)) as connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            _copy_database(ledger_file, staged / LEDGER.relative_path)
            if CACHE in parts:
                _add_newer(workspace.state / CACHE.relative_path, staged / CACHE.relative_path)
            connection.execute("ROLLBACK")


def _copy_database(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        # A temporary file that is still being written is not part of the backup.
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(TEMPORARY))
        return
    # SQLite's own copy is consistent while other processes write.
    with (
        _report_database_errors(source),
        closing(_open_database(source, "ro")) as here,
        closing(sqlite3.connect(target)) as there,
    ):
        here.backup(there)


def _add_newer(source: Path, copied: Path) -> None:
    """Add the entries that were added to the source after it was copied. They have higher row numbers."""
    with _report_database_errors(source), closing(_open_database(copied)) as there:
        there.execute("ATTACH ? AS source", (_sqlite_uri(source, "ro"),))
        last = there.execute("SELECT coalesce(max(rowid), 0) FROM entries").fetchone()[0]
        there.execute("INSERT OR REPLACE INTO entries SELECT * FROM source.entries WHERE rowid > ?", (last,))


def _find_user_files(workspace: Workspace) -> tuple[list[Path], list[str]]:
    """Return the files that a user wrote or edited (in a checkout also those under git), and notes on what is left
    out."""
    root = workspace.root
    candidates = {path for pattern in _USER_FILE_PATTERNS for path in root.glob(pattern) if path.is_file()}
    notes = []
    for name in sorted({name for settings in (root / "config").rglob("*.yaml") for name in _short_texts(settings)}):
        written_path = Path(name).expanduser()
        file = Path(os.path.normpath(root / written_path))
        if "/" in name and _has_type(file, Path.is_dir) and not file.is_relative_to(workspace.state):
            notes.append(f"{name} is a folder")
        if not ("/" in name or "." in name) or not _has_type(file, Path.is_file):
            continue
        if not file.is_relative_to(root):
            notes.append(f"{name} is outside of {root}")
        elif not file.is_relative_to(workspace.state):
            candidates.add(file)
    key_notes = [".env holds keys: copy it yourself, or write it again"] if workspace.environment_file.exists() else []
    lasting = (path for path in candidates if "__pycache__" not in path.parts and not path.match(TEMPORARY))
    user_files = (path for path in lasting if path != workspace.environment_file and not _is_shipped(workspace, path))
    return sorted(user_files), [*key_notes, *notes]


def _is_shipped(workspace: Workspace, file: Path) -> bool:
    """Return whether a workspace's file is unchanged since `podium init`; always False in a checkout, where git tells
    what was edited."""
    shipped = resources_folder() / file.relative_to(workspace.root)
    return workspace.root != resources_folder() and shipped.is_file() and sha256_of(shipped) == sha256_of(file)


def _has_type(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # the text is too long for a path
        return False


def _short_texts(settings: Path) -> Iterator[str]:
    """Yield the short strings in a settings file, some of which are names of files that it needs; none if it is not
    valid YAML."""
    try:
        values: list[Any] = [yaml.safe_load(settings.read_text(encoding="utf-8"))]
    except (OSError, ValueError, yaml.YAMLError):
        return
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, str) and len(value) < 1000 and "\n" not in value and "\0" not in value:
            yield value


# ── what a restore does ─────────────────────────────────────────────────────


def _check_version(place: Path, copy: Path) -> None:
    """Raise `DataError` if both files are databases of Podium with different versions."""
    is_readable = has_content(place) and count_rows(place, ()) >= 0
    theirs, ours = _read_version(copy), _read_version(place) if is_readable else 0
    if ours and theirs and ours != theirs:
        problem = f"is version {ours}, and the backup's is version {theirs}"
        raise DataError(place, "schema", problem, "Restore it with the version of Podium that made the backup")


def _read_version(file: Path) -> int:
    with closing(_open_database(file, "ro")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _merge_database(place: Path, copy: Path, part: WorkspacePart) -> str:
    """Add the backup's rows to a ledger or cache, or put the backup's file in place if there is none. Return what was
    done."""
    is_present, backup_count = has_content(place), count_rows(copy, part.tables)
    before = count_rows(place, part.tables) if is_present else 0
    if not is_present or before < 0 or not _read_version(place):
        aside = _put_database_in_place(place, copy, keep=is_present)
        return f"{backup_count:,} {part.unit}" + (f"; the file that was there is {aside} now" if aside else "")
    with _report_database_errors(place), closing(_open_database(place)) as ours:
        ours.execute("ATTACH ? AS copy", (_sqlite_uri(copy, "ro"),))
        ours.execute("BEGIN IMMEDIATE")
        added = _merge_ledgers(ours) if part is LEDGER else _merge_caches(ours)
        ours.execute("COMMIT")
    return f"{added:,} {part.unit} added to the {before:,} that are there"


def _upgrade_store(store: Path) -> None:
    """Upgrade a store of an earlier version. A file that cannot be read is left for the code that uses it to report."""
    if has_content(store) and count_rows(store, ()) >= 0 and _read_version(store) in EARLIER_STORES:
        with closing(SqliteFile(store, STORE_VERSION, (), earlier=EARLIER_STORES)) as file, file.connection():
            pass


def _merge_caches(ours: sqlite3.Connection) -> int:
    """Add the entries of the backup's cache that this one lacks. Return the number of added responses."""
    count = "SELECT count(*) FROM entries WHERE kind = 'response'"
    before = ours.execute(count).fetchone()[0]
    ours.execute("INSERT OR IGNORE INTO entries SELECT * FROM copy.entries")
    return int(ours.execute(count).fetchone()[0]) - int(before)


_CALL = "at, run, purpose, worker, prompt_tokens, completion_tokens, usd"
_NUMBERED = f"SELECT {_CALL}, row_number() OVER (PARTITION BY {_CALL}) FROM"
"""Equal calls are numbered, because several calls of one batch can be equal in all columns."""


def _merge_ledgers(ours: sqlite3.Connection) -> int:
    """Add the settled and lost calls that only the backup has. Return their number.

    Calls that were in flight when the backup was made are recorded as lost, unless this ledger is the one that was
    backed up: it has recorded how they ended.
    """
    ours.execute(
        f"CREATE TEMP TABLE added AS SELECT {_CALL} FROM ({_NUMBERED} copy.calls EXCEPT {_NUMBERED} main.calls)"
    )
    added = int(ours.execute("SELECT count(*) FROM added").fetchone()[0])
    ours.execute(
        "INSERT INTO spending SELECT run, purpose, worker, strftime('%Y-%m', at, 'unixepoch') AS in_month, count(*), "
        "sum(prompt_tokens), sum(completion_tokens), sum(usd) FROM added WHERE true GROUP BY run, purpose, worker, "
        "in_month ON CONFLICT (run, purpose, worker, month) DO UPDATE SET calls = calls + excluded.calls, "
        "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
        "completion_tokens = completion_tokens + excluded.completion_tokens, usd = usd + excluded.usd"
    )
    # The calls are inserted again in the order of time, because their ids must be in that order.
    ours.execute(f"INSERT INTO added SELECT {_CALL} FROM calls ORDER BY id")
    ours.execute("DELETE FROM calls")
    ours.execute(f"INSERT INTO calls ({_CALL}) SELECT {_CALL} FROM added ORDER BY at, rowid")
    lost = ours.execute(
        "INSERT INTO sent SELECT (SELECT coalesce(max(id), 0) FROM main.sent) + row_number() OVER (), at, run, "
        "purpose, worker, month, key, usd, 0, 0.0, 1, measured FROM copy.sent AS theirs WHERE (lost = 1 OR ?) "
        "AND NOT EXISTS (SELECT 1 FROM main.sent AS known WHERE known.at = theirs.at AND known.key = theirs.key)",
        (added > 0,),
    ).rowcount
    ours.execute("DROP TABLE added")
    return added + lost


def _restore_registry(place: Path, copy: Path, *, replace: bool) -> str:
    """Put the backup's MLflow database in place, unless the present one has contents, because the two cannot be
    merged."""
    from filelock import FileLock

    with FileLock(place.with_name("moving.lock")):  # promotions and rollbacks hold this lock too
        present_count, backup_count = (
            count_rows(place, REGISTRY.tables) if has_content(place) else 0,
            count_rows(copy, REGISTRY.tables),
        )
        if present_count > 0 and not replace:
            return (
                f"kept, it holds {present_count:,} {REGISTRY.unit}; --replace takes the {backup_count:,} of the backup"
            )
        aside = _put_database_in_place(place, copy, keep=has_content(place))
    return f"{backup_count:,} {REGISTRY.unit}" + (f"; the file that was there is {aside} now" if aside else "")


def _put_database_in_place(place: Path, copy: Path, *, keep: bool) -> str:
    """Put a database in place of a file that is absent or empty, or that is renamed because of `keep`. Return the new
    name, or ""."""
    aside = ""
    if keep:
        aside = f"{place.name}.replaced-{time.time_ns()}"
        place.rename(place.with_name(aside))
    for log in ("-wal", "-shm"):  # the log of the previous file does not belong to the new one
        old = place.with_name(place.name + log)
        if keep and old.exists():
            old.rename(place.with_name(aside + log))
        old.unlink(missing_ok=True)
    copy.replace(place)
    return aside


def _restore_files(workspace: Workspace, place: Path, copy: Path, *, replace: bool, written: bool = False) -> str:
    """Put the files of a folder in place, and return what was done.

    A present file that differs stays. With `replace` it is replaced, and with `written` it is replaced if no user has
    edited it.
    """
    restored_count, same_count, kept, aside = 0, 0, [], workspace.state / f"replaced-{time.time_ns()}"
    for theirs in list(_list_files(copy)):
        name = theirs.relative_to(copy)
        ours = place / name
        if ours.is_file() and sha256_of(ours) == sha256_of(theirs):
            same_count += 1
            continue
        if ours.exists() and not (replace or (written and _is_untouched(workspace, name))):
            kept.append(str(name))
            continue
        if ours.exists() and replace:
            # It is not kept beside the new file, because another file in its folder would change a registered version.
            (old := aside / ours.relative_to(workspace.root)).parent.mkdir(parents=True, exist_ok=True)
            ours.rename(old)
        with replace_atomically(ours) as temporary:
            shutil.copyfile(theirs, temporary)
        restored_count += 1
    text = f"{format_count(restored_count, 'file')} restored, {same_count:,} as they were"
    if aside.exists():
        text += f"; replaced ones are in {aside}"
    if kept:
        more = f" and {len(kept) - 3:,} more" if len(kept) > 3 else ""
        text += (
            f", {format_count(len(kept), 'other one')} kept ({', '.join(kept[:3])}{more}); --replace takes the backup's"
        )
    return text


def _is_untouched(workspace: Workspace, name: Path) -> bool:
    """Return whether a file is unchanged since `podium init` or since git's last commit, so that a user loses no
    work."""
    if _is_shipped(workspace, workspace.root / name):
        return True
    git = ["git", "-C", str(workspace.root)]
    try:
        for question in (["ls-files", "--error-unmatch"], ["diff", "--quiet", "HEAD"]):
            subprocess.run([*git, *question, "--", str(name)], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _extract(file: Path, staged: Path) -> None:
    try:
        with tarfile.open(file) as archive:
            archive.extractall(staged, filter="data")
        manifest = json.loads((staged / _MANIFEST).read_text(encoding="utf-8"))
        expected, archive_format = dict(manifest["sha256"]), int(manifest["format"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        remedy = "Name a file that `podium backup` wrote"
        raise DataError(file, "", f"is not a complete back-up ({error})", remedy) from None
    if archive_format > _FORMAT:
        raise DataError(
            file,
            "format",
            f"is {archive_format}, and this version of Podium reads formats up to {_FORMAT}",
            "Update Podium",
        )
    (staged / _MANIFEST).unlink()
    actual = {str(path.relative_to(staged)): sha256_of(path) for path in _list_files(staged)}
    if damaged := sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)):
        raise DataError(file, damaged[0], "differs from the backed-up file", "Take another back-up")


@contextmanager
def _report_database_errors(file: Path) -> Iterator[None]:
    """Convert errors of SQLite in the block to `DataError`, which names the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        remedy = "Make room if the disk is full, end a process that holds it, or restore it with `podium restore FILE`"
        raise DataError(file, "", f"cannot be copied ({error})", remedy) from None


def _open_database(file: Path, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(_sqlite_uri(file, mode), uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _sqlite_uri(file: Path, mode: str) -> str:
    return f"file:{quote(str(file))}?mode={mode}"


def _list_files(place: Path) -> Iterator[Path]:
    return (path for path in ([place] if place.is_file() else sorted(place.rglob("*"))) if path.is_file())
