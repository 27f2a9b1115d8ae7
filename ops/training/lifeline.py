"""A trainer does not outlive whoever asked for it.

What belongs here: watching one other process. What does not: starting or ending trainers (`assets.conductor`).

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


def name_of_this_process() -> str:
    """What to put into `PODIUM_PARENT`: the pid with the time of its start, for pids are used again."""
    return f"{os.getpid()}:{_started(os.getpid())}"


def watch() -> None:
    """End this process, at once and without clean-up, when the one named by `PODIUM_PARENT` is gone.

    Checkpoints are written whole, so that nothing is lost but the steps since the last. Does nothing
    where the variable is not set.
    """
    name = os.environ.get(ENV)
    if not name:
        return
    pid, _, started = name.partition(":")

    def wait() -> None:
        while _started(int(pid)) == started:
            time.sleep(_POLL_S)
        os._exit(_EXIT_STATUS)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def _started(pid: int) -> str:
    import psutil

    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
