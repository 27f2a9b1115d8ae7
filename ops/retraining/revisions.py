"""Exclude a changed worker's earlier answers by giving it a new revision, which is part of every cache key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from ops.alerts import notify
from ops.alerts.catalogue import WORKER_DRIFTED
from ops.config import Worker
from ops.config.pool import FILE, Revisions
from ops.core.workspace import Workspace


def record_revisions(config: Path, drifted: Sequence[Worker], on: date) -> dict[str, str]:
    """Record a new revision, dated `on`, for each drifted worker's model; return worker name → revision.

    The old answers stay in the cache under the keys of the old revision; they are no longer read and cannot be mixed
    with new ones. Pools with the model count as changed from then on. Raises `ConfigError` if the revisions cannot be
    read or written.
    """
    noted, names = Revisions.read(config), {}
    for worker in drifted:
        names[worker.name] = f"drift-{on.isoformat()}"
        noted = noted.noting(worker, names[worker.name])
    if names:
        noted.write(config)
    return names


def notify_of_drift(workspace: Workspace, revisions: Mapping[str, str]) -> None:
    """Send a notice of kind `drift` if any worker drifted. `revisions`: worker name → new revision."""
    if revisions:
        noted = "\n".join(f"{worker}: {revision}" for worker, revision in revisions.items())
        text = (
            f"A provider's answers have changed under the same model name. New revisions, in config/{FILE}:\n{noted}\n"
            "Earlier answers are no longer used. The sensor pool_changed plans the next steps if it is on"
        )
        notify(workspace, WORKER_DRIFTED.notice(f"{', '.join(revisions)} drifted", text))
