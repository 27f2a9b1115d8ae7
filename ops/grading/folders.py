"""Folders of their own for programs, in the system's temporary folder, named for who made them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

_PREFIX = "podium-sandbox"
_SAME_START_S = 2.0
"""A process's start is known up to corrections of the machine's clock."""


def sandbox_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one program, removed when the block ends; the first call sweeps what dead processes left."""
    place = tempfile.gettempdir()
    _sweep_once(place)
    # Errors ignored: a program may leave folders that it made unreadable.
    return tempfile.TemporaryDirectory(prefix=_prefix(os.getpid()), dir=place, ignore_cleanup_errors=True)


@lru_cache(maxsize=4)
def _prefix(pid: int) -> str:
    """Whose folder it is: process space (containers share a temporary folder), pid, second of its start."""
    return f"{_PREFIX}-{_process_space()}-{pid}-{_started(pid) or 0.0:.2f}-"


@lru_cache(maxsize=4)
def _sweep_once(place: str) -> None:
    sweep(Path(place))


def sweep(place: Path) -> list[Path]:
    """Remove the folders in `place` whose maker, a process of this machine and user, is dead."""
    swept = []
    for folder in place.glob(f"{_PREFIX}-*"):
        parts = folder.name.split("-")
        try:
            space, pid, started = parts[2], int(parts[3]), float(parts[4])
            mine = folder.stat(follow_symlinks=False).st_uid == os.getuid() and not folder.is_symlink()
        except (IndexError, ValueError, FileNotFoundError):  # another's name, or swept by another process
            continue
        alive = _started(pid)
        if mine and space == _process_space() and (alive is None or abs(alive - started) > _SAME_START_S):
            shutil.rmtree(folder, onerror=partial(_open_and_retry, folder))
            swept.append(folder)
    return swept


def _open_and_retry(folder: Path, remove: Callable[..., Any], path: str, _error: object) -> None:
    """Remove what a program made unreadable in `folder`; what that lies in stays as it is."""
    for changed in (Path(path).parent, Path(path)):
        try:
            if changed.is_relative_to(folder) and not changed.is_symlink():
                changed.chmod(stat.S_IRWXU)
        except FileNotFoundError:  # swept by another process
            return
    try:
        remove(path) if remove is os.unlink or remove is os.rmdir else shutil.rmtree(path, ignore_errors=True)
    except OSError:  # another process sweeps it, or it is not ours
        return


def _started(pid: int) -> float | None:
    """When the process began; None when there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def _process_space() -> str:
    """The PID namespace, "0" where there are none."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
