"""The limits of a program: the kernel's limits, and an audit hook that refuses actions that no honest answer needs."""

# ruff: noqa: PTH108, PTH109
# pathlib would cost milliseconds of every run.

from __future__ import annotations

import os
import resource
import sys

TYPE_CHECKING = False  # `typing` would take 7 ms of every run
if TYPE_CHECKING:
    from typing import Any

_SPAWN = {"os.fork", "os.forkpty", "pty.spawn"}
_EXEC = {"os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
_NETWORK = {
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
    "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo",
}  # fmt: skip
_SIGNALS = {"os.kill", "os.killpg", "signal.pthread_kill"}
_CHANGES = {
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink",
    "os.truncate", "os.utime", "shutil.rmtree", "shutil.move", "shutil.chown",
}  # fmt: skip
_LISTS = {"os.listdir", "os.scandir"}
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that a program may use; not /dev/shm, whose files would outlive it."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def set_limits(job: dict[str, Any], cpu_s: float) -> None:
    """Set the kernel's limits of this process. Limits that the kernel does not support are skipped."""
    whole = int(cpu_s) + (cpu_s % 1 > 0)
    for name, soft, hard in (
        ("RLIMIT_CPU", whole, whole + 1),
        ("RLIMIT_AS", job["memory"], job["memory"]),
        ("RLIMIT_FSIZE", job["file_bytes"], job["file_bytes"]),
        ("RLIMIT_NPROC", job["user_processes"], job["user_processes"]),
        ("RLIMIT_NOFILE", 256, 256),
        ("RLIMIT_CORE", 0, 0),
    ):
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (OSError, ValueError):
            continue


def install_guard(job: dict[str, Any]) -> None:
    """Install an audit hook that refuses the network, signals, many processes, and files elsewhere.

    An audit hook cannot be removed, and it also works where the kernel's limits do not (for root). It stops accidents
    and simple attacks; bubblewrap stops the rest.
    """
    owner, left = os.getpid(), [job["processes"]]
    may_exec, walled = job["may_exec"], job["walled"]
    home = os.path.realpath(os.getcwd()) + os.sep
    devices = tuple(f"{device}{os.sep}" for device in DEVICES)
    shown = (home, *devices, "/proc/self/", f"/proc/{owner}/", *(f"{place}{os.sep}" for place in job["shown"]))

    def below(path: object, places: tuple[str, ...]) -> bool:
        # In bubblewrap other places are absent, read-only, or private to this run.
        if walled or isinstance(path, int) or path is None:
            return True
        text = os.fsdecode(path)  # type: ignore[arg-type]
        return (os.path.realpath(text) + os.sep).startswith(places)

    def outside(path: object) -> bool:
        return not below(path, (home, *devices))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & _WRITES:
                if outside(arguments[0]):
                    raise PermissionError("the sandbox writes only in its own folder")
            elif not below(arguments[0], shown):
                raise PermissionError("the sandbox reads only its own folder and the libraries")
        elif event in _LISTS:
            if not below(arguments[0] or ".", shown):
                raise PermissionError("the sandbox lists only its own folder and the libraries")
        elif event in _SPAWN or event in _EXEC:
            if os.getpid() != owner or left[0] <= 0 or (event in _EXEC and not may_exec):
                raise PermissionError("the sandbox allows no further process")
            left[0] -= 1
        elif event in _NETWORK or event in _SIGNALS:
            raise PermissionError(f"the sandbox allows no {event}")
        elif event in _CHANGES and (outside(arguments[0]) or (event == "os.rename" and outside(arguments[1]))):
            raise PermissionError("the sandbox changes only its own folder")

    sys.addaudithook(hook)


def redirect_standard_streams() -> None:
    """Make the input empty, and redirect printed text to an unnamed file, so that the file limit bounds it."""
    null = os.open(os.devnull, os.O_RDWR)
    noise = os.open("noise", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.unlink("noise")
    os.dup2(null, 0)
    os.dup2(noise, 1)
    os.dup2(null, 2)
    for spare in (null, noise):
        os.close(spare)
