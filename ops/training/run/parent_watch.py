"""End a trainer with the process that started it.

Dagster ends a cancelled child, but a killed Dagster ends nothing, and a launcher's ranks may
lose their parent. So the process that starts a training puts its own name into the environment,
and every process of the training watches it; a rank watches its launcher, too.
"""

from __future__ import annotations

import os
import threading
import time

from ops.core.processes import name_of

ENV = "PODIUM_PARENT"
_POLL_S = 0.5
_EXIT_STATUS = 143
"""As after SIGTERM."""


def watched() -> list[str]:
    """The processes with which this one ends: the starting process, and a rank's own launcher.

    A launcher that is killed (for lack of memory, say, which its ranks use) does not end its ranks. A trainer that was
    started by hand has no launcher, and may outlive its shell.
    """
    launcher = name_of(os.getppid()) if "LOCAL_RANK" in os.environ else ""
    return [name for name in (os.environ.get(ENV, ""), launcher) if name]


def watch() -> None:
    """End this process, at once and without clean-up, when one of those `watched` is gone.

    Checkpoints are written whole, so that nothing is lost but the steps since the last. Does nothing
    where no process is to be watched.
    """
    names = watched()
    if not names:
        return

    def wait() -> None:
        while all(name_of(int(name.partition(":")[0])) == name for name in names):
            time.sleep(_POLL_S)
        os._exit(_EXIT_STATUS)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
