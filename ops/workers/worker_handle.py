"""A worker as a client uses it: its settings, its queue, and what its calls have shown so far."""

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
    """One worker of a client, with its settings, queue and state."""

    worker: Worker
    settings: dict[str, Any]
    """The keyword arguments of every LiteLLM call, without the messages."""
    file: Path | str
    """The pool's file, which error messages name."""
    remote: bool
    """True if the worker is called over a network, through the loop's session."""
    price: Price
    queue: WorkerQueue
    has_answered: bool = False
    """True if the worker has answered before. An apparent error of its configuration is then the provider's failure."""
    rejections: int = 0
    """The number of requests that the provider has rejected since the last response."""
    usage_error: ConfigError | None = None
    """The error that stops all further calls, because the provider reported an impossible usage; None if it did not."""
    excess_usd: float = 0.0
    """The highest amount in USD by which a reply has cost more than the expected maximum, for example because the
    provider charges a fee for each call. It is reserved in addition for each later call."""

    def record_answer(self) -> None:
        """Record a response of a live call."""
        self.has_answered, self.rejections = True, 0

    def raise_if_stopped(self) -> None:
        """Raise the `ConfigError` of an impossible claim of usage, if there was one."""
        if self.usage_error is not None:
            raise self.usage_error


def resolve_worker(
    worker: Worker, file: Path | str, limits: Path, durations: CallDurations | None = None
) -> WorkerHandle:
    """Return the handle of a worker of the pool in `file`. Raises `ConfigError` if a setting cannot be used.

    Processes with the same folder `limits`, or the same server in `$PODIUM_LIMITS_URL`, share the worker's limits. A
    tool in this process shares none, because no provider counts its calls and it answers faster than a lock can be
    taken. `durations` are the expected durations of calls to all workers of the client.
    """
    remote = is_remote(worker)
    return WorkerHandle(
        worker=worker,
        settings=request_settings(worker, file),
        file=file,
        remote=remote,
        price=find_price(worker, file),
        queue=WorkerQueue(worker, shared=_open_shared_limits(worker, limits) if remote else None, durations=durations),
    )


def _open_shared_limits(worker: Worker, folder: Path) -> MachineLimits | FleetLimits:
    url = os.environ.get(LIMITS_URL)
    return open_fleet_limits(url, worker) if url else open_machine_limits(folder, worker)
