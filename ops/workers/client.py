"""The worker client: it looks into the store first, and makes one call for all concurrent callers of the same
request."""

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
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.response import Response
from ops.spending.ledger import Ledger
from ops.store import ClaimLost, ResponseCache, cache_material
from ops.workers.live_call import Account, Caller, CallRecorder, Request
from ops.workers.replies import clean_stored_response
from ops.workers.scheduling import INDEPENDENT_CALL, CallDurations, Turn
from ops.workers.worker_handle import WorkerHandle, resolve_worker


@dataclass
class CallCounts:
    """Counts of worker calls, for a client, a training run or a stage.

    `live` replies were paid for, with `usd` in total. `cached` replies came from the store, and `replayed` ones from
    the recording of a rehearsal. `failed` calls gave no response, and `retries` counts repeated attempts.
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
    """Calls workers on one account, through the store of responses and the ledger.

    One client serves any number of tasks, event loops and threads. Each worker's limits apply to all of them together,
    and to all processes of this machine that use the same ledger, because they share files in the folder `limits`
    beside it. `pool_file` is the file that error messages name. `backoff_s` is the first pause before a retry in
    seconds; the pauses grow exponentially, with jitter.
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
        self._handles: dict[str, WorkerHandle] = {}
        self._identities: dict[str, tuple[Worker, dict[str, Any]]] = {}
        self._flights: dict[str, Future[Response | None]] = {}
        self._durations = CallDurations()
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
        self,
        worker: Worker,
        messages: Sequence[Message],
        *,
        sample: int | Sample = 0,
        turn: Turn = INDEPENDENT_CALL,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Response:
        """Return the worker's response to the messages, from the store if it was paid for before.

        A truncated response (finish_reason "length"), a blank one and a reply of a content filter are paid for, and are
        therefore stored as responses too. Identical concurrent calls are made only once, by one task of one of the
        processes that share the store. Raises the exceptions of `ops.workers.scheduling.Client`.
        """
        material = cache_material({**self._find_identity(worker), **parameters}, messages, sample)
        key = hashlib.sha256(material.encode()).hexdigest()
        request = Request(messages, Sample.of(sample), key, material, parameters)
        while True:
            if (hit := self.cache.get(key)) is not None:
                self._count(cached=1)
                if (handle := self._handles.get(worker.name)) is not None:
                    handle.rejections = 0  # the worker has answered requests of this kind
                return clean_stored_response(worker, hit)
            with self._lock:
                leader_future = self._flights.get(key)
                if leader_future is None:
                    result_future: Future[Response | None] = Future()
                    result_future.set_running_or_notify_cancel()  # a cancelled follower must not cancel it
                    self._flights[key] = result_future
            if leader_future is None:
                break
            with turn.waiting():
                shared = await asyncio.wrap_future(leader_future)
            if shared is not None:
                self._count(cached=1)
                return replace(shared, cached=True)
            # The task that made the call was cancelled, so this task checks again and may have to make the call itself.
        response: Response | None = None
        try:
            # The handle is made only now, because a worker whose answers are all stored needs no key and no LiteLLM.
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
                    pass  # nothing was sent, because another process makes the call
                finally:
                    claim.release()
        except BaseException as error:
            self._end_flight(key)
            if isinstance(error, PodiumError):
                self._count(failed=1)
                result_future.set_exception(error)
            else:  # cancelled
                result_future.set_result(None)
            raise
        self._end_flight(key)
        result_future.set_result(response)
        return response

    def _end_flight(self, key: str) -> None:
        with self._lock:
            del self._flights[key]

    def _find_identity(self, worker: Worker) -> dict[str, Any]:
        cached = self._identities.get(worker.name)
        if cached is None or (cached[0] is not worker and cached[0] != worker):
            cached = self._identities[worker.name] = worker, worker.identity
        return cached[1]

    def _find_handle(self, worker: Worker) -> WorkerHandle:
        handle = self._handles.get(worker.name)
        if handle is not None and (handle.worker is worker or handle.worker == worker):
            return handle
        handle = resolve_worker(worker, self._pool_file, self.ledger.path.with_name("limits"), self._durations)
        with self._lock:  # if two threads have made a handle, both use the first one
            shared_handle = self._handles.get(worker.name)
            if shared_handle is None or shared_handle.worker != worker:
                shared_handle = self._handles[worker.name] = handle
        return shared_handle

    def _count(self, *, live: int = 0, cached: int = 0, failed: int = 0, retries: int = 0, usd: float = 0.0) -> None:
        with self._lock:
            counts = self.counts
            counts.live += live
            counts.cached += cached
            counts.failed += failed
            counts.retries += retries
            counts.usd += usd
