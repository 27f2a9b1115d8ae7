"""A worker as a client calls it: its settings resolved once, and what is known of it since."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import ConfigError
from ops.workers.breaker import Breaker
from ops.workers.fleet import LIMITS_URL, FleetLimits, fleet_limits
from ops.workers.limits import Limits
from ops.workers.machine import MachineLimits, machine_limits
from ops.workers.providers import is_remote, request_settings, worst_price


@dataclass
class WorkerHandle:
    """One worker in a client: settings, limits, circuit breaker."""

    worker: Worker
    settings: dict[str, Any]
    """The keyword arguments of every LiteLLM call, but for the messages."""
    file: Path | str
    """The pool's file, for messages."""
    remote: bool
    """Asked over a network, through the loop's session."""
    limits: Limits
    breaker: Breaker
    worked: bool = False
    """It has answered before: what fails as if it were configured wrongly is then the provider's fault."""
    rejections: int = 0
    """Requests that the provider rejected since the last response."""
    not_believed: ConfigError | None = None
    """The provider reported an impossible usage: the error that stops all further calls."""

    def __post_init__(self) -> None:
        self._price = worst_price(self.worker, self.file)

    def answered(self) -> None:
        """Note a response of a live call."""
        self.worked, self.rejections = True, 0

    def raise_if_stopped(self) -> None:
        """Raise the `ConfigError` of an impossible claim of usage, if there was one."""
        if self.not_believed is not None:
            raise self.not_believed

    @property
    def price(self) -> tuple[float, float]:
        """USD per prompt token and per completion token, at most, if the call is made today."""
        if self.worker.price is not None and self.worker.price.later:
            return worst_price(self.worker, self.file)
        return self._price


def resolve_worker(worker: Worker, file: Path | str, limits: Path) -> WorkerHandle:
    """Resolve a worker of the pool in `file`. Raises `ConfigError`.

    The processes that name the same folder `limits` share the worker's, or those that name the same server in
    PODIUM_LIMITS_URL. A tool in this process has none to share: no provider counts its calls, and it answers sooner
    than a lock is had.
    """
    remote = is_remote(worker)
    return WorkerHandle(
        worker=worker,
        settings=request_settings(worker, file),
        file=file,
        remote=remote,
        limits=Limits(worker, machine=_shared_limits(worker, limits) if remote else None),
        breaker=Breaker(worker.breaker_failures, worker.breaker_rest_s),
    )


def _shared_limits(worker: Worker, folder: Path) -> MachineLimits | FleetLimits:
    url = os.environ.get(LIMITS_URL)
    return fleet_limits(url, worker) if url else machine_limits(folder, worker)
