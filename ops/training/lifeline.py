"""A trainer does not outlive whoever asked for it.

What belongs here: watching one other process. What does not: starting trainers (`assets.conductor`).

Dagster ends a cancelled child, but a killed Dagster ends nothing; and a launcher's ranks are
nobody's direct children. So the process that asks puts its own name into the environment, and
every process of the training watches it.
"""

from __future__ import annotations

import os
import threading
import time

ENV = "PODIUM_PARENT"
_POLL_S = 0.5
_EXIT_STATUS = 143
"""As after SIGTERM."""


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


def watch() -> None:
    """End this process, at once and without clean-up, when the one named by `PODIUM_PARENT` is gone.

    Checkpoints are written whole, so that nothing is lost but the steps since the last. Does nothing
    where the variable is not set.
    """
    name = os.environ.get(ENV)
    if not name:
        return
    pid = int(name.partition(":")[0])

    def wait() -> None:
        while name_of(pid) == name:
            time.sleep(_POLL_S)
        os._exit(_EXIT_STATUS)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
