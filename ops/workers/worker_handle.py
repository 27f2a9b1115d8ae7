"""A worker as used by a client: its settings resolved once, its circuit breaker and its state.

The breaker is our own: asyncio libraries for it either know one event loop only or wrap whole functions, and a call
here may be cancelled during its probe.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.config import Price, Worker
from ops.core.errors import ConfigError
from ops.workers.fleet import LIMITS_URL, FleetLimits, fleet_limits
from ops.workers.limits import Limits
from ops.workers.machine import MachineLimits, machine_limits
from ops.workers.providers import is_remote, price_of, request_settings


class Breaker:
    """Circuit breaker. Closed: calls pass. Open, after `failures` in a row: no call passes for `rest_s` seconds, then
    one probe.

    A response to the probe closes the circuit, a failure opens it again; if the probe is cancelled, the next call is
    the probe. Safe under threads.
    """

    def __init__(self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._rest_s, self._clock = failures, rest_s, clock
        self._row = 0
        self._open_until = 0.0
        self._probe: object | None = None
        self._lock = threading.Lock()
        self.reason = ""
        """The last failure, in words."""

    def rest_s(self, call: object) -> float:
        """Return the seconds that `call` must wait; 0: it may be made. After the pause, only one call passes at
        first."""
        if self._row < self._limit:  # without the lock: the usual case, and one call too many is harmless
            return 0.0
        with self._lock:
            if self._row < self._limit or self._probe is call:
                return 0.0
            left = self._open_until - self._clock()
            if left > 0:
                return left
            if self._probe is None:
                self._probe = call
                return 0.0
            return self._rest_s

    def is_probe(self, call: object) -> bool:
        """Return whether `call` is the probe."""
        return self._probe is call

    def succeeded(self) -> None:
        """The worker responded, with an answer or with a refusal."""
        if self._row:
            with self._lock:
                self._row, self._probe = 0, None

    def failed(self, call: object, reason: str) -> None:
        """Record that `call` got no response after all retries."""
        with self._lock:
            self._row += 1
            self.reason = reason
            if self._row >= self._limit:
                self._open_until = self._clock() + self._rest_s
            if self._probe is call:
                self._probe = None

    def left(self, call: object) -> None:
        """Record that `call` ended without information on the worker: it was cancelled, or not sent."""
        if self._probe is call:
            with self._lock:
                self._probe = None


@dataclass
class WorkerHandle:
    """One worker in a client: settings, limits, circuit breaker."""

    worker: Worker
    settings: dict[str, Any]
    """Keyword arguments of every LiteLLM call, without the messages."""
    file: Path | str
    """The pool's file, for error messages."""
    remote: bool
    """Called over a network, through the loop's session."""
    price: Price
    limits: Limits
    breaker: Breaker
    worked: bool = False
    """It has answered before, so an apparent error of configuration is the provider's failure."""
    rejections: int = 0
    """Requests that the provider rejected since the last response."""
    not_believed: ConfigError | None = None
    """The provider reported an impossible usage: the error that stops all further calls."""
    excess_usd: float = 0.0
    """The most USD by which a reply has cost more than was reserved for it."""

    def answered(self) -> None:
        """Record a response of a live call."""
        self.worked, self.rejections = True, 0

    def raise_if_stopped(self) -> None:
        """Raise the `ConfigError` of an impossible claim of usage, if there was one."""
        if self.not_believed is not None:
            raise self.not_believed


def resolve_worker(worker: Worker, file: Path | str, limits: Path) -> WorkerHandle:
    """Resolve a worker of the pool in `file`. Raises `ConfigError`.

    Processes with the same folder `limits`, or the same server in PODIUM_LIMITS_URL, share the worker's limits. A tool
    in this process shares none: no provider counts its calls, and it answers faster than a lock is taken.
    """
    remote = is_remote(worker)
    return WorkerHandle(
        worker=worker,
        settings=request_settings(worker, file),
        file=file,
        remote=remote,
        price=price_of(worker, file),
        limits=Limits(worker, machine=_shared_limits(worker, limits) if remote else None),
        breaker=Breaker(worker.breaker_failures, worker.breaker_rest_s),
    )


def _shared_limits(worker: Worker, folder: Path) -> MachineLimits | FleetLimits:
    url = os.environ.get(LIMITS_URL)
    return fleet_limits(url, worker) if url else machine_limits(folder, worker)
