"""A worker as used by a client: its settings resolved once, its queue, and what its calls have shown so far."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import ConfigError
from ops.workers.fleet import LIMITS_URL, FleetLimits, fleet_limits
from ops.workers.machine import MachineLimits, machine_limits
from ops.workers.providers import is_remote, request_settings, worst_price
from ops.workers.queue import WorkerQueue
from ops.workers.scheduling import Speeds


@dataclass
class WorkerHandle:
    """One worker in a client: settings, queue and state."""

    worker: Worker
    settings: dict[str, Any]
    """Keyword arguments of every LiteLLM call, without the messages."""
    file: Path | str
    """The pool's file, for error messages."""
    remote: bool
    """Called over a network, through the loop's session."""
    queue: WorkerQueue
    worked: bool = False
    """It has answered before, so an apparent error of configuration is the provider's failure."""
    rejections: int = 0
    """Requests that the provider rejected since the last response."""
    not_believed: ConfigError | None = None
    """The provider reported an impossible usage: the error that stops all further calls."""

    def __post_init__(self) -> None:
        self._price = worst_price(self.worker, self.file)

    def answered(self) -> None:
        """Record a response of a live call."""
        self.worked, self.rejections = True, 0

    def raise_if_stopped(self) -> None:
        """Raise the `ConfigError` of an impossible claim of usage, if there was one."""
        if self.not_believed is not None:
            raise self.not_believed

    @property
    def price(self) -> tuple[float, float]:
        """Return the highest USD per prompt token and per completion token of a call today."""
        if self.worker.price is not None and self.worker.price.later:
            return worst_price(self.worker, self.file)
        return self._price


def resolve_worker(worker: Worker, file: Path | str, limits: Path, speeds: Speeds | None = None) -> WorkerHandle:
    """Resolve a worker of the pool in `file`. Raises `ConfigError`. `speeds`: of all workers of the client.

    Processes with the same folder `limits`, or the same server in PODIUM_LIMITS_URL, share the worker's limits. A tool
    in this process shares none: no provider counts its calls, and it answers faster than a lock is taken.
    """
    remote = is_remote(worker)
    return WorkerHandle(
        worker=worker,
        settings=request_settings(worker, file),
        file=file,
        remote=remote,
        queue=WorkerQueue(worker, shared=_shared_limits(worker, limits) if remote else None, speeds=speeds),
    )


def _shared_limits(worker: Worker, folder: Path) -> MachineLimits | FleetLimits:
    url = os.environ.get(LIMITS_URL)
    return fleet_limits(url, worker) if url else machine_limits(folder, worker)
