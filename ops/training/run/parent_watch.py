"""End a trainer with the process that started it.

Dagster ends a cancelled child, but a killed Dagster ends nothing, and a launcher's ranks may lose their parent.
Therefore the process that starts a training writes its name into the environment, and every process of the training
watches it; a rank watches its launcher too.
"""

from __future__ import annotations

import os
import threading
import time

from ops.core.processes import name_of

ENV = "PODIUM_PARENT"
_POLL_S = 0.5
_EXIT_STATUS = 143
"""The exit status after SIGTERM."""


def watched() -> list[str]:
    """Return the processes whose end also ends this one: the starting process, and a rank's own launcher.

    A killed launcher (for example by a lack of memory, which its ranks use) does not end its ranks. A trainer that was
    started by hand has no launcher and may outlive its shell.
    """
    launcher = name_of(os.getppid()) if "LOCAL_RANK" in os.environ else ""
    return [name for name in (os.environ.get(ENV, ""), launcher) if name]


def watch() -> None:
    """End this process, at once and without clean-up, when a process of `watched` has ended.

    Checkpoints are written atomically, so only the steps since the last one are lost. Does nothing if no process is to
    be watched.
    """
    names = watched()
    if not names:
        return

    def wait() -> None:
        while all(name_of(int(name.partition(":")[0])) == name for name in names):
            time.sleep(_POLL_S)
        os._exit(_EXIT_STATUS)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
