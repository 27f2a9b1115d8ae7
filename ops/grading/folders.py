"""A temporary folder for each program that runs without bubblewrap, named after the process that made it."""

from __future__ import annotations

import errno
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PREFIX = "podium-sandbox"
_SAME_START_S = 2.0
"""Tolerance of a process's start time, which clock corrections change."""


@contextmanager
def sandbox_folder() -> Iterator[str]:
    """Provide a folder for one program, which is removed when the block ends.

    The first call in a process also removes the folders of processes that have ended.
    """
    place = tempfile.gettempdir()
    _remove_abandoned_once(place)
    folder = tempfile.mkdtemp(prefix=_folder_prefix(os.getpid()), dir=place)
    try:
        yield folder
    finally:
        remove_folder(Path(folder))


@lru_cache(maxsize=4)
def _folder_prefix(pid: int) -> str:
    """Return the beginning of the names of this process's folders: PID namespace, PID, and the second of its start.

    Containers may share a temporary folder, so the namespace is part of the name.
    """
    return f"{_PREFIX}-{_find_pid_namespace()}-{pid}-{_find_start_time(pid) or 0.0:.2f}-"


@lru_cache(maxsize=4)
def _remove_abandoned_once(place: str) -> None:
    remove_abandoned_folders(Path(place))


def remove_abandoned_folders(place: Path) -> list[Path]:
    """Remove the folders in `place` whose creator, a process of this machine and user, has ended.

    Never raises: a folder that cannot be read or removed is left in place and logged.
    """
    swept = []
    for name in _list_sandbox_folders(place):
        parts = name.split("-")
        folder = place / name
        try:
            space, pid, started = parts[2], int(parts[3]), float(parts[4])
            found = folder.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and space == _find_pid_namespace()
            dead = mine and not _is_running(pid, started)
        except (IndexError, ValueError, OverflowError, OSError):  # another name, or swept by another process
            continue
        if dead and remove_folder(folder):
            swept.append(folder)
    return swept


def _list_sandbox_folders(place: Path) -> list[str]:
    try:
        return [name for name in os.listdir(place) if name.startswith(f"{_PREFIX}-")]  # noqa: PTH208
    except OSError as error:
        _LOG.warning("%s: the folders of earlier programs were not swept: %s", place, error.strerror)
        return []


def remove_folder(folder: Path) -> bool:
    """Remove a folder that a program filled; return whether it is gone. Never raises: remaining files are logged.

    The nesting depth does not matter: no path, stack or number of open files grows with it.
    """
    errors: list[OSError] = []
    try:
        top = _open_folder(str(folder), None)
    except FileNotFoundError:  # swept by another process
        return True
    except OSError as error:
        errors.append(error)
    else:
        _empty_folder(top, errors)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        errors.append(error)
        _LOG.warning("%s: a program's folder could not be removed: %s", folder, errors[0])
        return False
    return True


def _empty_folder(folder: int, errors: list[OSError]) -> None:
    """Remove everything below an open folder, depth first and with one open folder at a time, and close the folder."""
    above: list[tuple[tuple[int, int], list[str]]] = []
    """The path from the outermost folder to the open one, with the folders that are still to be removed."""
    try:
        above.append((_device_and_inode(folder), _remove_files(folder, errors)))
        while True:
            left = above[-1][1]
            if left:
                if (inner := _call_or_collect_error(errors, partial(_open_folder, left[-1], folder))) is None:
                    left.pop()
                    continue
                os.close(folder)
                folder = inner
                above.append((_device_and_inode(folder), _remove_files(folder, errors)))
                continue
            above.pop()
            if not above:
                return
            outer = os.open("..", _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = outer
            identity, names = above[-1]
            if _device_and_inode(folder) != identity:
                raise OSError(errno.ESTALE, "a process moves folders while they are removed")
            _call_or_collect_error(errors, partial(os.rmdir, names.pop(), dir_fd=folder))
    except OSError as error:
        errors.append(error)
    finally:
        os.close(folder)


def _device_and_inode(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def _open_folder(name: str, above: int | None) -> int:
    """Return a folder's descriptor after making the folder writable, because a program may have removed all
    permissions."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        descriptor = os.open(name, _FOLDER, dir_fd=above)
    if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(OSError):
            os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _remove_files(folder: int, errors: list[OSError]) -> list[str]:
    """Remove everything in an open folder except its folders; return the names of the folders."""
    folders = []
    for name in os.listdir(folder):
        try:
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                folders.append(name)
            else:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:  # swept by another process
            continue
        except OSError as error:
            errors.append(error)
    return folders


def _call_or_collect_error(errors: list[OSError], change: Callable[[], T]) -> T | None:
    try:
        return change()
    except FileNotFoundError:  # swept by another process
        return None
    except OSError as error:
        errors.append(error)
        return None


def _is_running(pid: int, started: float) -> bool:
    """Return whether the process that made a folder still runs; a later process may have the same number."""
    begun = _find_start_time(pid)
    return begun is not None and not abs(begun - started) > _SAME_START_S  # NaN: unknown


def _find_start_time(pid: int) -> float | None:
    """Return when the process began; None if it does not run."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def _find_pid_namespace() -> str:
    """Return the id of the PID namespace; "0" if the system has none."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
