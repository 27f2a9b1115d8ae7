"""Whether the process that holds something is still there: pids are used again, and some are only suspended."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

_CLOCK_SLACK_S = 5.0
"""A process's start time is reckoned from the boot time, which moves when the clock is set."""


class ProcessId(NamedTuple):
    """A process for all time: its pid, and when it began (seconds since the epoch)."""

    pid: int
    started: float


State = Literal["running", "suspended", "gone"]
_own: ProcessId | None = None


def this_process() -> ProcessId:
    """The identity of the process that asks; a forked child has its own."""
    global _own
    if _own is None or _own.pid != os.getpid():
        import psutil

        _own = ProcessId(os.getpid(), float(psutil.Process().create_time()))
    return _own


def state_of(process: ProcessId) -> State:
    """What has become of it: "suspended" by a signal or a debugger, "gone" also while it is only not yet reaped."""
    import psutil

    try:
        there = psutil.Process(process.pid)
        status = there.status()
        if status == psutil.STATUS_ZOMBIE or abs(there.create_time() - process.started) > _CLOCK_SLACK_S:
            return "gone"
    except psutil.NoSuchProcess:
        return "gone"
    return "suspended" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"


def name_of(pid: int) -> str:
    """A process's name for all time: the pid with the second of its start, for pids are used again.

    A process that is gone, or only not yet reaped, has a name that no other ever had.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        started = 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        started = 0.0
    return f"{pid}:{started:.2f}"
