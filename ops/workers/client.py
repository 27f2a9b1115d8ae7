"""The one way to ask a worker: cache first, budget second, LiteLLM last.

What belongs here: one call's path (look-up, reservation, attempts, retries,
booking), limits on concurrency and rate, and counting. What does not: storage
(cache), money (ledger), how LiteLLM is called and its errors read (providers,
failures), and running many problems (precache).
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tenacity

from ops.config import Worker
from ops.errors import OverBudget, PodiumError, WorkerRefused, WorkerUnreachable
from ops.workers.booking import BookingDesk
from ops.workers.cache import ResponseCache, cache_material
from ops.workers.failures import Transient, describe, read_failure
from ops.workers.ledger import Bill, Ledger, Reservation
from ops.workers.providers import (
    close_with_loop,
    cost_usd,
    litellm,
    most_tokens,
    provider_error,
    request_settings,
    worst_price,
)
from ops.workers.types import Message, Response

_ROOM_POLL_S = 0.02
_BACKOFF_LIMIT_S = 30.0


@dataclass
class Counts:
    """What a client did: `live` replies paid for (`usd`), `cached` ones, `failed` calls, further attempts."""

    live: int = 0
    cached: int = 0
    failed: int = 0
    retries: int = 0
    usd: float = 0.0


@dataclass
class _Seat:
    """A worker as this client calls it: settings resolved once, and its limits."""

    worker: Worker
    identity: dict[str, Any]
    settings: dict[str, Any]
    price: tuple[float, float]
    retrying: tenacity.AsyncRetrying
    slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    not_before: float = 0.0
    """Monotonic time before which the provider asked not to be called again."""
    next_slot: float = 0.0

    async def semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if (slots := self.slots.get(loop)) is None:
            await close_with_loop()
            slots = self.slots.setdefault(loop, asyncio.Semaphore(self.worker.concurrency))
        return slots

    async def turn(self) -> None:
        """Wait until the provider's wish and `requests_per_minute` allow another call."""
        if self.worker.requests_per_minute:
            now = time.monotonic()
            start = max(self.next_slot, now)
            self.next_slot = start + 60.0 / self.worker.requests_per_minute
            await asyncio.sleep(start - now)
        while (wait := self.not_before - time.monotonic()) > 0:  # noqa: ASYNC110  (not_before may move)
            await asyncio.sleep(wait)


class WorkerClient:
    """Asks workers on behalf of one run, for one purpose ("precache", "training", "evaluation" …).

    One client serves any number of tasks, event loops and threads. `cap_usd` bounds
    the run, over all processes; `month_cap_usd` the calendar month. `pool_file` is
    what error messages name; `backoff_s` is the first pause before a retry (doubling,
    with jitter).
    """

    def __init__(
        self,
        cache: ResponseCache,
        ledger: Ledger,
        purpose: str,
        run: str,
        cap_usd: float,
        *,
        month_cap_usd: float | None = None,
        pool_file: Path | str = "config/pools",
        backoff_s: float = 0.5,
    ) -> None:
        self.cache, self.ledger = cache, ledger
        self.purpose, self.run, self.cap_usd, self.month_cap_usd = purpose, run, cap_usd, month_cap_usd
        self.counts = Counts()
        self._pool_file, self._backoff_s = pool_file, backoff_s
        self._seats: dict[str, _Seat] = {}
        self._flights: dict[str, Future[Response | None]] = {}
        self._lock = threading.Lock()
        self._desk = BookingDesk(cache, ledger)

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0) -> Response:
        """Give the worker's response to the messages, from the cache if it was ever paid for.

        A truncated response (finish_reason "length") is a response. Identical calls in
        flight in this process are made once. Raises as `ops.workers.types.Client` says.
        """
        seat = self._seat(worker)
        material = cache_material(seat.identity, messages, sample)
        key = hashlib.sha256(material.encode()).hexdigest()
        while True:
            if (hit := self.cache.get(key)) is not None:
                self._count(cached=1)
                return hit
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    own: Future[Response | None] = Future()
                    own.set_running_or_notify_cancel()  # a cancelled follower must not cancel it
                    self._flights[key] = own
            if flight is None:
                return await self._lead(seat, messages, key, material, own)
            if (shared := await asyncio.wrap_future(flight)) is not None:
                self._count(cached=1)
                return replace(shared, cached=True)
            # The leader was cancelled: look again, and perhaps lead.

    async def _lead(
        self,
        seat: _Seat,
        messages: Sequence[Message],
        key: str,
        material: str,
        flight: Future[Response | None],
    ) -> Response:
        try:
            response = await self._live(seat, messages, key, material)
        except PodiumError as error:
            self._count(failed=1)
            self._land(key)
            flight.set_exception(error)
            raise
        except BaseException:
            self._land(key)
            flight.set_result(None)
            raise
        self._land(key)
        flight.set_result(response)
        return response

    def _land(self, key: str) -> None:
        with self._lock:
            del self._flights[key]

    def _seat(self, worker: Worker) -> _Seat:
        seat = self._seats.get(worker.name)
        if seat is not None and (seat.worker is worker or seat.worker == worker):
            return seat
        seat = _Seat(
            worker,
            worker.identity,
            request_settings(worker, self._pool_file),
            worst_price(worker, self._pool_file),
            _retrying(worker, self._backoff_s),
        )
        with self._lock:  # of two threads that made one, both use the first
            kept = self._seats.get(worker.name)
            if kept is None or kept.worker != worker:
                kept = self._seats[worker.name] = seat
        return kept

    # ── a live call ──────────────────────────────────────────────────────────

    async def _live(self, seat: _Seat, messages: Sequence[Message], key: str, material: str) -> Response:
        try:
            async for attempt in seat.retrying.copy():  # tenacity keeps a call's state on the object
                with attempt:
                    retries = attempt.retry_state.attempt_number - 1
                    if retries:
                        self._count(retries=1)
                    return await self._attempt(seat, messages, key, material, retries)
        except Transient as error:
            raise WorkerUnreachable(
                f"worker {seat.worker.name!r} ({seat.worker.model}): no response after "
                f"{seat.worker.retries + 1} attempts, at last {error}"
            ) from None
        raise AssertionError("tenacity ends with a response or an error")

    async def _attempt(
        self, seat: _Seat, messages: Sequence[Message], key: str, material: str, retries: int
    ) -> Response:
        """One request. Raises `Transient`, or what `complete` raises."""
        async with await seat.semaphore():
            await seat.turn()
            reservation = await self._reserve(seat, messages)
            start = time.perf_counter()
            try:
                reply = await self._send(seat, messages)
            except BaseException:
                self.ledger.release(reservation)
                raise
            elapsed = time.perf_counter() - start
            response = _response(seat.worker, messages, reply, elapsed, retries)
            await self._desk.book(self._bill(seat, reservation, response), key, material, response)
            self._count(live=1, usd=response.cost_usd)
        return _judged(seat.worker, response)

    async def _reserve(self, seat: _Seat, messages: Sequence[Message]) -> Reservation:
        """Reserve the worst case; while calls of our own are in flight, wait for what they leave over."""
        worst = most_tokens(messages) * seat.price[0] + seat.worker.max_tokens * seat.price[1]
        while True:
            try:
                return self.ledger.reserve(self.run, worst, self.cap_usd, month_cap_usd=self.month_cap_usd)
            except OverBudget:
                if self.ledger.in_flight(self.run) == 0:
                    raise
            await asyncio.sleep(_ROOM_POLL_S)

    async def _send(self, seat: _Seat, messages: Sequence[Message]) -> Any:
        try:
            # LiteLLM's time-out bounds each read; this one bounds the whole call.
            async with asyncio.timeout(seat.worker.timeout_s):
                return await litellm().acompletion(messages=list(messages), **seat.settings)
        except TimeoutError as error:
            raise Transient(describe(error)) from None
        except provider_error() as error:
            failure = read_failure(error, seat.worker, self._pool_file)
            if isinstance(failure, Transient) and failure.retry_after_s:
                seat.not_before = max(seat.not_before, time.monotonic() + failure.retry_after_s)
            raise failure from None

    def _bill(self, seat: _Seat, reservation: Reservation, response: Response) -> Bill:
        return Bill(
            reservation,
            self.purpose,
            seat.worker.name,
            response.cost_usd,
            response.prompt_tokens,
            response.completion_tokens,
        )

    def _count(self, *, live: int = 0, cached: int = 0, failed: int = 0, retries: int = 0, usd: float = 0.0) -> None:
        with self._lock:
            counts = self.counts
            counts.live += live
            counts.cached += cached
            counts.failed += failed
            counts.retries += retries
            counts.usd += usd


def _retrying(worker: Worker, backoff_s: float) -> tenacity.AsyncRetrying:
    """As often as the worker's `retries` say, waiting as the provider wishes, or ever longer."""
    backoff = tenacity.wait_exponential(multiplier=backoff_s, max=_BACKOFF_LIMIT_S) + tenacity.wait_random(0, backoff_s)

    def pause(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        wish = error.retry_after_s if isinstance(error, Transient) else None
        return max(wish or 0.0, backoff(state))

    return tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(worker.retries + 1),
        wait=pause,
        retry=tenacity.retry_if_exception_type(Transient),
        reraise=True,
    )


def _response(worker: Worker, messages: Sequence[Message], reply: Any, elapsed_s: float, retries: int) -> Response:
    text, reason = _content(reply)
    prompt_tokens, completion_tokens = _usage(reply, messages, text)
    return Response(
        text=text or "",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=cost_usd(worker, reply, prompt_tokens, completion_tokens),
        latency_s=elapsed_s if worker.latency_s is None else worker.latency_s,
        finish_reason=reason,
        retries=retries,
    )


def _content(reply: Any) -> tuple[str | None, str]:
    if not reply.choices:
        return None, "no_choices"
    choice = reply.choices[0]
    return choice.message.content, str(choice.finish_reason or "stop")


def _usage(reply: Any, messages: Sequence[Message], text: str | None) -> tuple[int, int]:
    """Tokens as the provider counted them; counted here when it does not say."""
    usage = getattr(reply, "usage", None)
    prompt, completion = getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0
    if prompt == 0 and completion == 0:
        count = litellm().token_counter
        return int(count(messages=list(messages))), int(count(text=text or ""))
    return int(prompt), int(completion)


def _judged(worker: Worker, response: Response) -> Response:
    """A paid reply that is no answer raises; an empty one is worth another try unless it was cut off."""
    if response.finish_reason == "content_filter":
        raise WorkerRefused(f"worker {worker.name!r}: the provider's content filter withheld the answer")
    if not response.text and response.finish_reason != "length":
        raise Transient(f"an empty reply ({response.finish_reason})")
    return response
