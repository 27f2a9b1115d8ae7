"""Who writes what: runs that write different files go side by side, and of two that write the same one waits.

A lock is the operating system's (flock), so a killed process holds nothing; a volume that machines share must keep
such locks (NFS 4 and most cluster file systems do).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ops.core.workspace import Workspace

log = logging.getLogger(__name__)


@contextmanager
def alone(workspace: Workspace, *files: Path) -> Iterator[None]:
    """Be the only one, of all processes on the workspace, that writes these files. Waits, however long it takes.

    Not for a process that holds one of them already.
    """
    from filelock import FileLock, Timeout

    folder = workspace.state / "locks"
    with ExitStack() as stack:
        # In one order for everybody, so that no two wait for each other.
        for name in sorted({_name(workspace, file) for file in files}):
            lock = FileLock(folder / name)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                log.warning("another run writes %s: waiting for it", name.removesuffix(".lock").replace("--", "/"))
                lock.acquire()
            stack.callback(lock.release)
        yield


def _name(workspace: Workspace, file: Path) -> str:
    return "--".join(file.relative_to(workspace.root).parts) + ".lock"
