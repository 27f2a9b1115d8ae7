"""Identify processes, and lock files between processes.

Pids are reused, so a process is identified by its start too. Locks are the operating system's (flock), so a killed
process holds none; a volume shared by machines must support such locks (NFS 4 and most cluster file systems do).
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
"""The most open files that a process asks for."""


def free_port() -> int:
    """Return a port of this machine that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_open_file_limit() -> int:
    """Raise this process's limit of open files as far as permitted, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class ProcessId(NamedTuple):
    """A unique identity of a process: its pid, and a number derived from its start."""

    pid: int
    started: float
    """On Linux the boot and clock ticks since then, which do not depend on the settable clock. Elsewhere seconds since
    the epoch, as recorded by the kernel."""


State = Literal["running", "suspended", "gone"]
_this_process: ProcessId | None = None


def this_process() -> ProcessId:
    """Return the identity of the calling process; a forked child has its own."""
    global _this_process
    if _this_process is None or _this_process.pid != os.getpid():
        import psutil

        _this_process = ProcessId(os.getpid(), _start_number(psutil.Process()))
    return _this_process


def process_state(process: ProcessId) -> State:
    """Return the state of a process: "suspended" by a signal or a debugger; "gone" also if it has ended but is not yet
    reaped."""
    import psutil

    try:
        there = psutil.Process(process.pid)
        status = there.status()
        if status == psutil.STATUS_ZOMBIE or _start_number(there) != process.started:
            return "gone"
    except psutil.NoSuchProcess:
        return "gone"
    return "suspended" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"


def unique_process_name(pid: int) -> str:
    """Return a process's unique name: the pid with a number of its start, because pids are reused.

    A process that has ended, or is not yet reaped, gets a name that no other process had.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        started = 0.0 if process.status() == psutil.STATUS_ZOMBIE else _start_number(process)
    except psutil.NoSuchProcess:
        started = 0.0
    return f"{pid}:{started:.2f}"


def _start_number(process: psutil.Process) -> float:
    """Return `ProcessId.started` of a running process. Raises `psutil.NoSuchProcess`."""
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
    """Return a number of up to 20 bits for this boot, never 0, because pids and ticks restart with each boot."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        name = b""
    return zlib.crc32(name) % ((1 << 20) - 1) + 1


log = logging.getLogger(__name__)


def hold_run_lock(workspace: Workspace) -> AcquireReturnProxy:
    """Hold the lock of the checkout's pipeline run, which this process may hold already: until the block ends that this
    is given to, or nothing refers to it.

    Raises `PodiumError` when another process holds it. A killed process holds nothing.
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
    """Exclude all other processes on the workspace from writing these files; wait without a limit.

    Not for a process that already holds one of them.
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
