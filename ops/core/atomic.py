"""Replace files atomically, create folders that are either complete or absent, and remove temporary files of killed
processes."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

_WRITTEN_FOLDERS = frozenset({".podium", "data"})
"""The folders of a workspace into which steps write."""
TEMPORARY = ".*.tmp"
"""Glob pattern of the names of temporary files, which git and DVC ignore (.gitignore, .dvcignore)."""
_OWNER = re.compile(r"\.(?P<host>[0-9a-z]+)-(?P<pid>[0-9]+)-[0-9a-f]{8}\.tmp$")
"""Pattern of a temporary name's ending, which contains the host name and the pid of the process that writes it."""


@contextmanager
def replace_atomically(file: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary path beside `file`. At the end of the block it replaces `file` in one step, with the
    permissions `mode`.

    If the block raises, `file` is unchanged. Temporary files of killed processes that wrote `file` are removed. If
    `file` is a folder inside a workspace's `.podium` or `data`, the folder is renamed and a warning is logged.

    Raises `OSError`, whose file name is `file`.
    """
    with name_file_in_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(file.parent, file.name)
    temporary = _temporary_path(file)
    try:
        with name_file_in_errors(file):
            yield temporary
            temporary.chmod(mode)
            if file.is_dir() and not file.is_symlink() and not _WRITTEN_FOLDERS.isdisjoint(file.parts):
                aside = file.rename(file.with_name(f"{file.name}.damaged-{time.time_ns()}"))
                log.warning("%s is a folder in the place of a file. It was renamed to %s", file, aside.name)
            temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(file: Path, text: str) -> None:
    """Replace the content of `file` by `text` (UTF-8) in one step. A crash leaves the old content or the new one, never
    a mixture.

    Raises `OSError`, whose file name is `file`.
    """
    with replace_atomically(file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def write_bytes(file: Path, content: bytes) -> None:
    """Replace the content of `file` in one step, as `write_text` does for text. Raises `OSError`, whose file name is
    `file`."""
    with replace_atomically(file) as temporary:
        temporary.write_bytes(content)


@contextmanager
def create_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield a new temporary folder beside `folder`. At the end of the block it is renamed to `folder` in one step.

    If the block raises, the temporary folder is removed. If another process has created `folder` meanwhile, that one is
    kept. Temporary folders of killed processes that created `folder` are removed. Raises `OSError`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder.parent, folder.name)
    temporary = _temporary_path(folder)
    temporary.mkdir()
    try:
        yield temporary
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def temporary_folder_beside(place: Path) -> Iterator[Path]:
    """Yield a new folder on the same file system as `place`, and remove it at the end of the block.

    All temporary files and folders of killed processes in the parent folder of `place` are removed as well. Raises
    `OSError`.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers_beside(place)
    temporary = _temporary_path(place)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove the temporary files and folders for `name` in `folder` whose writing process has died on this machine.

    With the default name "*", temporary files of every name are removed, also in all folders below.
    """
    _remove_if_left_over(folder.rglob(TEMPORARY) if name == "*" else folder.glob(f".{glob.escape(name)}{TEMPORARY}"))


def remove_leftovers_beside(place: Path) -> None:
    """Remove the temporary files and folders of every name in the parent folder of `place` whose process has died on
    this machine."""
    _remove_if_left_over(place.parent.glob(TEMPORARY))


def _remove_if_left_over(candidates: Iterable[Path]) -> None:
    """Remove those of the given temporary files and folders whose writing process has died on this machine."""
    for path in list(candidates):
        if not is_left_over(path):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_left_over(file: Path) -> bool:
    """Return whether the process that wrote this temporary file ran on this machine and has died.

    It is False for processes of other machines, which may share the file system, because their state is unknown.
    """
    import psutil  # imported here because most writers find no temporary file

    owner = _OWNER.search(file.name)
    return owner is not None and owner["host"] == _host_name() and not psutil.pid_exists(int(owner["pid"]))


def sha256_of(file: Path) -> str:
    """Return the SHA-256 digest of a file's content as 64 hex digits. Raises `OSError`."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _temporary_path(place: Path) -> Path:
    return place.with_name(f".{place.name}.{_host_name()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def _host_name() -> str:
    return re.sub(r"[^0-9a-z]", "", socket.gethostname().lower()) or "host"


@contextmanager
def name_file_in_errors(file: Path) -> Iterator[None]:
    """Set the file name of every `OSError` of the block to `file`, because errors of a write or a close do not have
    one."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise
