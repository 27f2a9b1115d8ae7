"""A worker as used by a client: its settings resolved once, its queue, and what its calls have shown so far."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.config import Price, Worker
from ops.core.errors import ConfigError
from ops.workers.machine_limits import MachineLimits, open_machine_limits
from ops.workers.providers import find_price, is_remote, request_settings
from ops.workers.queue import WorkerQueue
from ops.workers.redis_limits import LIMITS_URL, FleetLimits, open_fleet_limits
from ops.workers.scheduling import CallDurations


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
    price: Price
    queue: WorkerQueue
    has_answered: bool = False
    """It has answered before, so an apparent error of configuration is the provider's failure."""
    rejections: int = 0
    """Requests that the provider rejected since the last response."""
    usage_error: ConfigError | None = None
    """The provider reported an impossible usage: the error that stops all further calls."""
    excess_usd: float = 0.0
    """The most USD by which a reply has cost more than its worst case, for example because its provider bills a fee for
    each call. It is reserved for each later call in addition to the worst case."""

    def record_answer(self) -> None:
        """Record a response of a live call."""
        self.has_answered, self.rejections = True, 0

    def raise_if_stopped(self) -> None:
        """Raise the `ConfigError` of an impossible claim of usage, if there was one."""
        if self.usage_error is not None:
            raise self.usage_error


def resolve_worker(worker: Worker, file: Path | str, limits: Path, speeds: CallDurations | None = None) -> WorkerHandle:
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
        price=find_price(worker, file),
        queue=WorkerQueue(worker, shared=_open_shared_limits(worker, limits) if remote else None, speeds=speeds),
    )


def _open_shared_limits(worker: Worker, folder: Path) -> MachineLimits | FleetLimits:
    url = os.environ.get(LIMITS_URL)
    return open_fleet_limits(url, worker) if url else open_machine_limits(folder, worker)
