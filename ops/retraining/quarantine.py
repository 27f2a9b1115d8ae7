"""Setting aside what a worker answered before it was swapped: by its revision, which every cache key holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from ops.alerts import notify
from ops.alerts.catalogue import WORKER_DRIFTED
from ops.config import Worker
from ops.config.pool import FILE, Revisions
from ops.core.workspace import Workspace


def quarantine(config: Path, drifted: Sequence[Worker], on: date) -> dict[str, str]:
    """Note for each of these workers' models that it is another one since that day; worker's name → its revision.

    The old answers stay in the cache, under the keys of the model as it was; nothing asks for them any more, and none
    can be mixed with those that follow. The pools that have the model differ from then on, as after any edit: a
    changed worker. Raises `ConfigError`.
    """
    noted, names = Revisions.read(config), {}
    for worker in drifted:
        names[worker.name] = f"drift-{on.isoformat()}"
        noted = noted.noting(worker, names[worker.name])
    if names:
        noted.write(config)
    return names


def tell(workspace: Workspace, revisions: Mapping[str, str]) -> None:
    """A notice of kind `drift`, where any worker (worker's name → its new revision) drifted."""
    if revisions:
        noted = "\n".join(f"{worker}: {revision}" for worker, revision in revisions.items())
        text = (
            f"A provider answers otherwise under the same model name. New revisions, in config/{FILE}:\n{noted}\n"
            "Earlier answers are not used any more. The sensor pool_changed plans what follows, if it is on"
        )
        notify(workspace, WORKER_DRIFTED.notice(f"{', '.join(revisions)} drifted", text))
