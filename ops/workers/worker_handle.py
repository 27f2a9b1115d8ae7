"""A worker as a client calls it: its settings resolved once, its circuit breaker, and what is known of it since.

The breaker is our own: the libraries for asyncio either know one event loop only or wrap whole functions, and a call
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

from ops.config import Worker
from ops.core.errors import ConfigError
from ops.workers.fleet import LIMITS_URL, FleetLimits, fleet_limits
from ops.workers.limits import Limits
from ops.workers.machine import MachineLimits, machine_limits
from ops.workers.providers import is_remote, request_settings, worst_price


class Breaker:
    """Closed: calls pass. Open, after `failures` in a row: none does for `rest_s` seconds. Then one may try.

    The one that tries closes the circuit by a response and opens it again by a failure; if it
    is cancelled, the next one tries. Safe under threads.
    """

    def __init__(self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._rest_s, self._clock = failures, rest_s, clock
        self._row = 0
        self._open_until = 0.0
        self._probe: object | None = None
        self._lock = threading.Lock()
        self.reason = ""
        """What the last failure was, in words."""

    def rest_s(self, call: object) -> float:
        """Seconds that `call` must wait; 0: it may be made. After the pause, only one call may be made at first."""
        if self._row < self._limit:  # without the lock: the usual case, and one call too many does no harm
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
        """Whether `call` is the one that tries whether the worker is back."""
        return self._probe is call

    def succeeded(self) -> None:
        """The worker responded, with an answer or with a refusal."""
        if self._row:
            with self._lock:
                self._row, self._probe = 0, None

    def failed(self, call: object, reason: str) -> None:
        """`call` got no response after all its retries."""
        with self._lock:
            self._row += 1
            self.reason = reason
            if self._row >= self._limit:
                self._open_until = self._clock() + self._rest_s
            if self._probe is call:
                self._probe = None

    def left(self, call: object) -> None:
        """`call` ended without saying anything of the worker: it was cancelled, or not sent."""
        if self._probe is call:
            with self._lock:
                self._probe = None


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
