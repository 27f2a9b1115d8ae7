"""Whether the process that holds something is still there: pids are used again, and some are only suspended.

What belongs here: a process's identity, and what has become of it. What does not: what it
holds (the ledger's reservations, the cache's claims).
"""

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
