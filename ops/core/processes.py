"""Identify processes across the reuse of pids, and lock files between processes.

A process is identified by its pid and its start, because the operating system reuses pids. Locks are those of the
operating system (flock), so a killed process releases them. A volume that machines share must support such locks, as
NFS 4 and most cluster file systems do.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace

if TYPE_CHECKING:
    import psutil
    from filelock import AcquireReturnProxy


MAX_OPEN_FILES = 65_536
"""The limit of open files that a process requests at most."""


def free_port() -> int:
    """Return the number of a TCP port of this machine on which no program listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_open_file_limit() -> int:
    """Raise the limit of open files of this process as far as it is permitted, and return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class ProcessId(NamedTuple):
    """The identity of a process: its pid and a number that is derived from its start."""

    pid: int
    started: float
    """On Linux it combines the boot's number with the clock ticks since the boot, so that it does not depend on the
    adjustable clock. On other systems it is the start in seconds since the epoch, as the kernel recorded it."""


State = Literal["running", "suspended", "gone"]
_this_process: ProcessId | None = None


def this_process() -> ProcessId:
    """Return the identity of the calling process. A forked child has an identity of its own."""
    global _this_process
    if _this_process is None or _this_process.pid != os.getpid():
        import psutil

        _this_process = ProcessId(os.getpid(), _start_number(psutil.Process()))
    return _this_process


def process_state(process: ProcessId) -> State:
    """Return the state of a process: "running", "suspended" (by a signal or a debugger) or "gone".

    A process that has ended but was not yet reaped by its parent (a zombie) is "gone" too.
    """
    import psutil

    try:
        process_info = psutil.Process(process.pid)
        status = process_info.status()
        if status == psutil.STATUS_ZOMBIE or _start_number(process_info) != process.started:
            return "gone"
    except psutil.NoSuchProcess:
        return "gone"
    return "suspended" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"


def unique_process_name(pid: int) -> str:
    """Return a name for the process with this pid that no other process has had: the pid and the number of its start.

    The number is 0 for a process that has ended.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        started = 0.0 if process.status() == psutil.STATUS_ZOMBIE else _start_number(process)
    except psutil.NoSuchProcess:
        started = 0.0
    return f"{pid}:{started:.2f}"


def _start_number(process: psutil.Process) -> float:
    """Return `ProcessId.started` of a running process. Raises `psutil.NoSuchProcess` if it has ended."""
    import psutil

    if not psutil.LINUX:
        return float(process.create_time())
    try:
        content = Path(f"/proc/{process.pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(process.pid) from None
    ticks = int(content.rpartition(b")")[2].split()[19])  # field 22; the name, in brackets, may contain any characters
    return float(_boot_number() << 33 | ticks)


@cache
def _boot_number() -> int:
    """Return a number from 1 to 2^20 − 1 for this boot of the machine, because pids and ticks start again with each
    boot."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        name = b""
    return zlib.crc32(name) % ((1 << 20) - 1) + 1


log = logging.getLogger(__name__)


def hold_run_lock(workspace: Workspace) -> AcquireReturnProxy:
    """Hold the lock that allows only one pipeline run at a time in this workspace.

    The lock is re-entrant within the process. It is released at the end of a `with` block, when the returned object is
    garbage-collected, or when the process ends. Raises `PodiumError` if another process holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(workspace.state / "lifecycle.lock", is_singleton=True)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        message = "another pipeline run of this workspace is going on. Wait for its end or stop it"
        raise PodiumError(f"{lock.lock_file}: {message}") from None


@contextmanager
def lock_files(workspace: Workspace, *files: Path) -> Iterator[None]:
    """Lock these files against writers in all other processes of the workspace, waiting as long as necessary.

    Must not be called by a process that already holds the lock of one of the files.
    """
    from filelock import FileLock, Timeout

    folder = workspace.state / "locks"
    with ExitStack() as stack:
        # All processes lock in one order, so that no two wait for each other.
        for name in sorted({_lock_name(workspace, file) for file in files}):
            lock = FileLock(folder / name)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                log.warning("waiting for another run that writes %s", name.removesuffix(".lock").replace("--", "/"))
                lock.acquire()
            stack.callback(lock.release)
        yield


def _lock_name(workspace: Workspace, file: Path) -> str:
    return "--".join(file.relative_to(workspace.root).parts) + ".lock"
