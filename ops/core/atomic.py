"""Atomic replacement of files, folders that are whole or absent, removal of what killed writers left, and the hash of
a file."""

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
"""Glob of the names of temporary files: git and DVC ignore them (.gitignore, .dvcignore)."""
_OWNER = re.compile(r"\.(?P<host>[0-9a-z]+)-(?P<pid>[0-9]+)-[0-9a-f]{8}\.tmp$")


@contextmanager
def replace_atomically(file: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary file beside `file`, which replaces it in one step at the end of the block, with these
    permissions.

    After an error `file` is unchanged. In a workspace's folders `.podium` and `data`, a folder in the place of the file
    is renamed, with one line that says so. Temporary files of killed writers of `file` are removed. Raises `OSError`,
    which names `file`.
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
    """Replace `file` by `text` in one step: a crash leaves the old file or the new one, never a part.

    Raises `OSError`, which names `file`.
    """
    with replace_atomically(file) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def write_bytes(file: Path, content: bytes) -> None:
    """Replace `file` by `content` in one step, as `write_text` does. Raises `OSError`, which names `file`."""
    with replace_atomically(file) as temporary:
        temporary.write_bytes(content)


@contextmanager
def create_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside `folder`, which becomes `folder` in one step at the end of the block.

    After an error there is none. A folder that another process has made meanwhile stays. What killed writers of
    `folder` left is removed. Raises `OSError`.
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
    """Yield a new folder beside `place` for the block, on the same file system, and remove it afterwards.

    What killed writers left in that folder is removed, whatever its name. Raises `OSError`.
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
    """Remove temporary files and folders of `name` in `folder` whose writers died on this machine; "*": of everything
    below."""
    _remove_if_left_over(folder.rglob(TEMPORARY) if name == "*" else folder.glob(f".{glob.escape(name)}{TEMPORARY}"))


def remove_leftovers_beside(place: Path) -> None:
    """Remove temporary files and folders of any name beside `place`, whose writers died on this machine."""
    _remove_if_left_over(place.parent.glob(TEMPORARY))


def _remove_if_left_over(found: Iterable[Path]) -> None:
    """Remove those temporary files and folders whose writers died on this machine."""
    for left in list(found):
        if not is_left_over(left):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def is_left_over(file: Path) -> bool:
    """Return whether the writer of a temporary file died on this machine."""
    import psutil  # imported here, because few writers need it

    owner = _OWNER.search(file.name)
    return owner is not None and owner["host"] == _host_name() and not psutil.pid_exists(int(owner["pid"]))


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content in hex digits. Raises `OSError`."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _temporary_path(place: Path) -> Path:
    return place.with_name(f".{place.name}.{_host_name()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def _host_name() -> str:
    return re.sub(r"[^0-9a-z]", "", socket.gethostname().lower()) or "host"


@contextmanager
def name_file_in_errors(file: Path) -> Iterator[None]:
    """Add `file` to errors of the block: the error of a write or a close has no file name."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise
