"""The worker client: first the response cache, then one call for all concurrent callers."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import PodiumError
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.spending.ledger import Ledger
from ops.store import ClaimLost, ResponseCache, cache_material
from ops.workers.live_call import Account, Caller, CallRecorder, Request
from ops.workers.replies import clean_stored_response
from ops.workers.scheduling import INDEPENDENT_CALL, CallDurations, Turn
from ops.workers.worker_handle import WorkerHandle, resolve_worker


@dataclass
class CallCounts:
    """Counts of the worker calls of a client, a training run or a stage.

    `live` replies paid for (`usd`), `cached` ones, `replayed` ones of a rehearsal, `failed` calls, and
    further attempts (`retries`).
    """

    live: int = 0
    cached: int = 0
    failed: int = 0
    retries: int = 0
    usd: float = 0.0
    replayed: int = 0

    def __add__(self, other: CallCounts) -> CallCounts:
        return CallCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


class WorkerClient:
    """Calls workers at the expense of one account.

    One client serves any number of tasks, event loops and threads. Each worker's limits hold over all of them, and over
    all processes of this machine that use the same ledger, because they share the files in `limits` beside it.
    `pool_file` is the file that error messages name; `backoff_s` is the first pause before a retry (doubling, with
    jitter).
    """

    def __init__(
        self,
        cache: ResponseCache,
        ledger: Ledger,
        account: Account,
        *,
        pool_file: Path | str = "config/pools",
        backoff_s: float = 0.5,
    ) -> None:
        self.cache, self.ledger = cache, ledger
        self.counts = CallCounts()
        self._pool_file = pool_file
        self._seats: dict[str, WorkerHandle] = {}
        self._identities: dict[str, tuple[Worker, dict[str, Any]]] = {}
        self._flights: dict[str, Future[Response | None]] = {}
        self._speeds = CallDurations()
        self._lock = threading.Lock()
        self._caller = Caller(
            ledger=ledger,
            recorder=CallRecorder(cache, ledger),
            account=account,
            pool_file=pool_file,
            backoff_s=backoff_s,
            on_retry=lambda: self._count(retries=1),
            on_paid=lambda usd: self._count(live=1, usd=usd),
        )

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, turn: Turn = INDEPENDENT_CALL
    ) -> Response:
        """Return the worker's response to the messages, from the cache if it was paid for before.

        A truncated response (finish_reason "length") is a response, and so is a blank one: both were paid for and are
        stored, as is a reply of a content filter. Identical concurrent calls are made once, by one task of this process
        and by one of the processes that share the cache. Raises the exceptions of `ops.workers.scheduling.Client`.
        """
        parameters = worker.request_parameters
        material = cache_material(worker.identity if parameters else self._find_identity(worker), messages, sample)
        key = hashlib.sha256(material.encode()).hexdigest()
        request = Request(messages, Sample.of(sample), key, material, parameters)
        if parameters:  # one handle, with its queue, for a worker whatever the parameters of a request are
            worker = worker.with_request_parameters(dict.fromkeys(parameters))
        while True:
            if (hit := self.cache.get(key)) is not None:
                self._count(cached=1)
                if (handle := self._seats.get(worker.name)) is not None:
                    handle.rejections = 0  # the worker has answered requests of this kind
                return clean_stored_response(worker, hit)
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    own: Future[Response | None] = Future()
                    own.set_running_or_notify_cancel()  # a cancelled follower must not cancel it
                    self._flights[key] = own
            if flight is None:
                break
            with turn.waiting():
                shared = await asyncio.wrap_future(flight)
            if shared is not None:
                self._count(cached=1)
                return replace(shared, cached=True)
            # The task that made the call was cancelled: check again, and perhaps make the call here.
        response: Response | None = None
        try:
            # Only now, because a worker whose answers are all cached needs neither a key nor LiteLLM.
            handle = self._find_handle(worker)
            while response is None:
                with turn.waiting():
                    claim = await self.cache.claim(key)
                if isinstance(claim, Response):  # another process made the call
                    self._count(cached=1)
                    response = clean_stored_response(handle.worker, claim)
                    break
                try:
                    response = await self._caller.call(handle, request, turn)
                except ClaimLost:
                    pass  # nothing was sent: another process makes the call
                finally:
                    claim.release()
        except BaseException as error:
            self._end_flight(key)
            if isinstance(error, PodiumError):
                self._count(failed=1)
                own.set_exception(error)
            else:  # cancelled
                own.set_result(None)
            raise
        self._end_flight(key)
        own.set_result(response)
        return response

    def _end_flight(self, key: str) -> None:
        with self._lock:
            del self._flights[key]

    def _find_identity(self, worker: Worker) -> dict[str, Any]:
        known = self._identities.get(worker.name)
        if known is None or (known[0] is not worker and known[0] != worker):
            known = self._identities[worker.name] = worker, worker.identity
        return known[1]

    def _find_handle(self, worker: Worker) -> WorkerHandle:
        handle = self._seats.get(worker.name)
        if handle is not None and (handle.worker is worker or handle.worker == worker):
            return handle
        handle = resolve_worker(worker, self._pool_file, self.ledger.path.with_name("limits"), self._speeds)
        with self._lock:  # if two threads made one, both use the first
            kept = self._seats.get(worker.name)
            if kept is None or kept.worker != worker:
                kept = self._seats[worker.name] = handle
        return kept

    def _count(self, *, live: int = 0, cached: int = 0, failed: int = 0, retries: int = 0, usd: float = 0.0) -> None:
        with self._lock:
            counts = self.counts
            counts.live += live
            counts.cached += cached
            counts.failed += failed
            counts.retries += retries
            counts.usd += usd
