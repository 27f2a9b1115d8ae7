"""Start and end the sandbox's interpreter: descriptors, the job, the report.

Without bubblewrap, the kernel's own rules for files, TCP and signals restrict it (Landlock, since Linux 5.13).
"""

from __future__ import annotations

import builtins
import os
import struct
import sys

from ops.grading.harness.guard import DEVICES, redirect_standard_streams

TYPE_CHECKING = False  # `typing` would take 7 ms of every run
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Job = dict[str, Any]

# ruff: noqa: PTH109, PTH112
# pathlib would cost milliseconds of every run.


_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls, which have the same numbers on every architecture."""
_NO_NEW_PRIVILEGES, _SECCOMP = 38, 22
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_FOLDER
_FIRST_RIGHTS = (1 << 13) - 1
_RIGHTS_SINCE = {2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL}
"""Version → the right over files that it added: to move between folders, to truncate, to control devices."""
_TCP_SINCE, _TCP = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract UNIX sockets and signals reach only the program's own processes; so does `ptrace`, in every version."""


def restrict_process(job: dict[str, Any]) -> None:
    """Remove every capability of this process, and its access to user namespaces, other paths and TCP.

    This also holds for its children. A kernel without Landlock, or with an older version, restricts what it can.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "prctl"):  # not Linux
        return
    nothing, word = ctypes.c_ulong(0), ctypes.c_long
    libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), nothing, nothing, nothing)
    libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))  # version 3 of the structure, and empty sets
    if job["filter"]:
        held = ctypes.create_string_buffer(job["filter"], len(job["filter"]))
        program = struct.pack("@HP", len(job["filter"]) // 8, ctypes.addressof(held))
        libc.prctl(_SECCOMP, ctypes.c_ulong(2), program, nothing, nothing)
    version = libc.syscall(word(_CREATE), None, nothing, word(1))
    if version < 1:
        return
    files = _FIRST_RIGHTS | sum(right for since, right in _RIGHTS_SINCE.items() if version >= since)
    network, scopes = _TCP * (version >= _TCP_SINCE), _SCOPES * (version >= _SCOPES_SINCE)
    rules = libc.syscall(word(_CREATE), struct.pack("=QQQ", files, network, scopes), word(24), nothing)
    if rules < 0:
        return
    for place, rights in _list_allowed_paths(job):
        try:
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # not on this machine
            continue
        allowed = rights & files & (-1 if os.path.isdir(place) else _FILE_RIGHTS)
        libc.syscall(word(_ADD), word(rules), word(1), struct.pack("=Qi", allowed, opened), nothing)
        os.close(opened)
    libc.syscall(word(_RESTRICT), word(rules), nothing)
    os.close(rules)


def _list_allowed_paths(job: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for place in (*job["shown"], "/proc"):
        yield place, _READ_RIGHTS
    for device in DEVICES:
        yield device, _READ_FILE | _WRITE_FILE
    yield os.getcwd(), ~_IOCTL
    if job["processes"]:  # locks between processes are files there
        yield "/dev/shm", ~(_IOCTL | _EXECUTE)


def main(run: Callable[[Job], str], job: Job) -> None:
    """Detach stdin and stdout from the program, run the job, write the report after its nonce, and exit at once."""
    report = os.dup(1)
    redirect_standard_streams()
    if not job["walled"]:
        restrict_process(job)
    sys.path.extend(job["path"])
    sys.argv = ["program.py"]
    for name in ("exit", "quit"):  # site's, which -S leaves out
        setattr(builtins, name, sys.exit)
    nonce, job["report"] = job.pop("nonce"), report
    text = memoryview((nonce + run(job)).encode())
    while text:
        text = text[os.write(report, text) :]
    os._exit(0)
